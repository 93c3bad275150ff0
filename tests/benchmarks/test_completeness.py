"""The benchmark of the completeness interval, small: what it simulates, and that the interval covers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.completeness import Known, covers, emoji_set, markdown, simulate, summary, world
from repair_ray.evaluation.completeness import completeness


@pytest.fixture(scope="module")
def small() -> Known:
    return world(0, scenes=120, queries=40)


def test_the_interval_covers_in_simulated_builds(small: Known) -> None:
    found = [simulate(small, 15, 8, 15, seed) for seed in range(30)]
    assert sum(covers(own, missed) for own, missed in found) >= 27
    # Not because nothing is missed, or because it says nothing.
    recalls = [100 * own.inside_matches / (own.inside_matches + missed) for own, missed in found]
    assert min(recalls) < 70 < max(recalls)
    row = summary(small, 8, 15, found)
    assert 5 < row["width"] < 60
    assert "| world | 120 | 8 | 15 |" in markdown({"rows": [row], "builds": 30, "queries": 15})


def test_an_estimate_that_takes_too_little_for_granted_does_not_cover() -> None:
    # Ten of 100 pairs were missed; a sample of 50 that found none of them happens once in 1,700 times.
    assert not covers(completeness(20, 100, 50, 0), 10)
    assert covers(completeness(20, 100, 50, 5), 10)


def test_the_same_for_a_seed(small: Known) -> None:
    assert simulate(small, 10, 5, 5, 3) == simulate(small, 10, 5, 5, 3) != simulate(small, 10, 5, 5, 4)


def test_emoji_counts_pictures_that_share_a_caption(tmp_path: Path) -> None:
    texts = [["ok", "OK button"], ["OK!", "sign"], ["sign", "Ok"], ["alone"]]
    pq.write_table(pa.table({"captions_multi": texts}), tmp_path / "test.parquet")
    known = emoji_set(tmp_path)
    rows = {tuple(np.flatnonzero(row)) for row in known.truth}
    assert rows == {(0, 1, 2), (1, 2)} and known.truth.shape == (2, 4)
