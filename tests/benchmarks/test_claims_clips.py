"""The claim of SAN on clips, on a few of them: figures by variant, read again from a finished run, and compared."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.claims_clips import FIGURES, VARIANTS, compare, run

FEW = [
    "data.world={language: en, train: 60, validation: 5, test: 15}",
    "base.steps=10",
    "training.steps=10",
    "negatives.alpha=-1",
    "negatives.beta=-1",
    "negatives.language=en",
    "tower.embed=16",
    "bootstrap=20",
]


def test_figures_by_variant(tmp_path: Path) -> None:
    found = run(2, tmp_path, FEW)
    assert tuple(found) == VARIANTS and all(tuple(figures) == FIGURES for figures in found.values())
    assert all(0 <= value <= 100 for figures in found.values() for value in figures.values())
    manifests = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("manifest.json")}
    assert run(2, tmp_path, FEW) == found
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("manifest.json")} == manifests
    other = run(3, tmp_path, FEW)
    assert other != found


def test_differences_by_hand() -> None:
    plain = {name: dict.fromkeys(FIGURES, 50.0) for name in VARIANTS}
    runs = [{**plain, "san": {"fine": fine, "i2t": 90.0, "t2i": 80.0}} for fine in (55.0, 60.0, 65.0)]
    found = compare(runs)
    assert found["san"]["fine"] == 60 and found["san"]["i2t"] == 90
    assert found["random"]["san_minus"] == [5, 10, 15]
    mean, low, high = found["random"]["interval"]
    # The 97.5 % quantile of t with 2 degrees of freedom is 4.303; the standard error is 5 / sqrt(3).
    assert (mean, high - mean, mean - low) == pytest.approx((10, 12.42, 12.42), abs=0.01)


def test_an_oracle_that_knows_the_retriever_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="the oracle is not independent: circular"):
        run(0, tmp_path, [*FEW, "stress={}"])
