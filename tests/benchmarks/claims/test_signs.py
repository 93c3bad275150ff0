"""The claim of SAN on clips, on a few of them: figures by variant, read again from a finished run."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.claims.signs import FIGURES, VARIANTS, run

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


def test_an_oracle_that_knows_the_retriever_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="the oracle is not independent: circular"):
        run(0, tmp_path, [*FEW, "stress={}"])
