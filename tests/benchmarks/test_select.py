"""Selection and its peer choose alike, and a difference is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.select import CANDIDATES, QUICK, Ours, Plain, check, drafts, width_of


def test_both_choose_the_same_candidates(tmp_path: Path) -> None:
    assert width_of("tiny-64") == 128
    blocks = drafts(tmp_path / "run", QUICK)
    assert [len(block) for block in blocks] == [8, 8]
    ours, plain = Ours(tmp_path / "run", QUICK, blocks), Plain(tmp_path / "run", QUICK, blocks)
    assert ours.turn() > 0 and plain.turn() > 0
    check(ours.made, plain.chosen)
    assert {best for best, _ in plain.chosen.values()} <= set(range(CANDIDATES))
    best, align = plain.chosen["000003"]
    with pytest.raises(AssertionError, match="000003"):
        check(ours.made, {**plain.chosen, "000003": (best, align + 0.1)})
