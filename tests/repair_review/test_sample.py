"""Everybody sees the same sample, in proportion to direction and error type."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from repair_ray import tables
from repair_ray.config import Config
from repair_ray.repair_review.edits import round_of
from repair_ray.repair_review.sample import sample_of
from repair_ray.run import Recipe, Run, RunError
from tests.export.made_run import EDITS, make_run
from tests.repair_review.conftest import item_of

Made = tuple[Run, Config]


def strata(run: Run, n: int) -> Counter[tuple[str, str]]:
    return Counter((row["direction"], row["error_types"][0]) for row in sample_of(run, 1, n))


@pytest.mark.parametrize(
    ("n", "counts"),
    [
        # Of 10: 6 object, 2 count (f8 and f9, by what comes first) and 2 of the other direction.
        (5, (3, 1, 1)),
        (3, (1, 1, 1)),
        # 2.4, 0.8 and 0.8 are due.
        (4, (2, 1, 1)),
        (10, (6, 2, 2)),
        (99, (6, 2, 2)),
    ],
)
def test_strata_by_hand(made: Made, n: int, counts: tuple[int, int, int]) -> None:
    found = strata(made[0], n)
    keys = (("i2t", "object"), ("i2t", "count"), ("t2i", "attribute"))
    assert tuple(found[key] for key in keys) == counts and found.total() == sum(counts)


def test_it_is_drawn_once(made: Made) -> None:
    run, _ = made
    first = sample_of(run, 1, 6, 3)
    assert sample_of(run, 1) == sample_of(run, 1, 6, 3) == first
    assert [row["place"] for row in first] == list(range(6))
    assert {row["failure_id"] for row in first} <= {f"f{n}" for n in range(10)}
    for n, seed in ((7, None), (None, 0), (6, 4)):
        with pytest.raises(RunError, match=r"is a sample of 6 edits \(seed 3\), and annotators must see the same one"):
            sample_of(run, 1, n, seed)


def test_the_order_is_that_of_the_seed_and_not_of_the_table(tmp_path: Path) -> None:
    def drawn(name: str, seed: int) -> list[str]:
        (tmp_path / name).mkdir()
        run, _ = make_run(tmp_path / name, {name: EDITS["f1"] for name in map(str, range(30))})
        return [row["failure_id"] for row in sample_of(run, 1, 20, seed)]

    first, again, other = (drawn(*which) for which in (("a", 0), ("b", 0), ("c", 1)))
    assert first == again != other
    assert first != sorted(first)


def test_failures_without_an_error_type_are_a_stratum(made: Made) -> None:
    run, _ = made
    run.redo("round-1/verdicts")
    assert {row["error_types"] == [] for row in sample_of(run, 1)} == {True}


def test_nothing_to_review(tmp_path: Path) -> None:
    run, _ = make_run(tmp_path, {"f5": EDITS["f5"], "f4": EDITS["f4"]})
    with pytest.raises(RunError, match=r"round-1/edits in .*made holds no accepted edit to review \(1 x too far\)"):
        sample_of(run, 1)
    assert run.manifest("review/round-1") is None
    with pytest.raises(RunError, match=r"round 2 of .* has no edits to review yet; rounds that have: 1"):
        round_of(run, 2)
    run.redo("edits")
    with pytest.raises(RunError, match=r"made has no edits to review yet$"):
        round_of(run, None)


def test_edits_made_anew_are_other_items(made: Made) -> None:
    run, _ = made
    sample_of(run, 1)
    before = item_of(run, "f0")
    table = run.read("round-1/edits")
    assert "review/round-1" in run.redo("edits"), "the sample hangs on what it was drawn from"
    run.ready("round-1/edits", Recipe({"model": "another"}))
    run.commit("round-1/edits", Recipe({"model": "another"}), tables.EDITS, table, 0.0)
    assert item_of(run, "f0") != before
    assert {row["item_id"] for row in sample_of(run, 1)} >= {item_of(run, "f0")}
    # Somebody who writes tables by hand.
    run.commit("round-1/edits", Recipe({"model": "a third"}), tables.EDITS, table, 0.0)
    with pytest.raises(RunError, match=r"is a sample of edits that were made anew since: remove .*review/round-1"):
        sample_of(run, 1)
