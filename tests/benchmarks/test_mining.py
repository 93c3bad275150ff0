"""What the mining benchmark holds against each other, and what it says where its peer is not installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import mining
from benchmarks.mining import Engine, check
from benchmarks.rows import Skipped
from benchmarks.search import make_run
from benchmarks.turns import Settings
from repair_ray.run import Run


def test_other_negatives_are_told_and_rounding_is_not() -> None:
    ours = {f"q{n}": ["a", "b"] for n in range(2000)}
    check(ours, {query: ["b", "a"] for query in ours})
    check(ours, {**ours, "q1": ["a", "c"], "q2": ["a", "c"]})
    with pytest.raises(AssertionError, match="3 of 2000 queries have other negatives"):
        check(ours, {**ours, "q1": ["a", "c"], "q2": ["a", "c"], "q3": ["a", "c"]})
    with pytest.raises(AssertionError, match="not the same queries"):
        check(ours, {"q0": ["a", "b"]})


def test_the_engine_finds_what_a_full_sort_finds_without_the_query_s_own_picture(tmp_path: Path) -> None:
    run = Run(tmp_path)
    make_run(run, 40, 40)
    engine = Engine(run)
    engine.turn()
    scores = engine.vectors.captions.features @ engine.vectors.images.features.T
    for place in range(40):
        scores[place, place] = -2
    expected = {
        f"caption-{place:08d}": [f"image-{other:08d}" for other in (-scores[place]).argsort()[: mining.K]]
        for place in range(40)
    }
    assert engine.found() == expected


def test_a_peer_that_is_not_installed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mining, "NEEDED", ("datasets_of_another_planet",))
    with pytest.raises(Skipped, match=r"datasets_of_another_planet not installed; .*requirements-peers.txt"):
        next(mining.rows(Settings(True, tmp_path)))
