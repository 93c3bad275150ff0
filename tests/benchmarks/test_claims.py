"""The comparison over seeds, on figures that can be worked out by hand."""

from __future__ import annotations

import json
from typing import Any

import pytest

from benchmarks.claims import CONTROLS, compare, markdown


def metrics(i2t: float, t2i: float) -> dict[str, Any]:
    return {"i2t": {"r@1": i2t}, "t2i": {"r@1": t2i}}


def summary(repair: tuple[float, float], control: tuple[float, float]) -> dict[str, Any]:
    return {
        "base": {"metrics": metrics(10, 10)},
        "evaluation": {"images": 50, "split": "test"},
        "rounds": [{"metrics": metrics(*repair), "truth": {}, "edits": {"accepted": {}}}],
        "controls": {name: {"metrics": metrics(*control)} for name in CONTROLS},
        "training": {"base/training": {"items_encoded": 7}},
    }


def test_difference_of_two_seeds_by_hand() -> None:
    result = compare([summary((30, 20), (28, 20)), summary((34, 20), (28, 20))])
    row = next(row for row in result["rows"] if row["name"] == "mined")
    # i2t: repair is 2 and 6 points above; mean 4, deviation sqrt(8), half width 12.706 * 2.8284 / sqrt(2) = 25.41.
    assert row["repair_minus"]["i2t"] == pytest.approx([4, 4 - 25.41, 4 + 25.41], abs=0.01)
    assert row["repair_minus"]["mean"] == pytest.approx([2, 2 - 12.71, 2 + 12.71], abs=0.01)
    assert row["r@1"] == {"i2t": 28, "t2i": 20, "mean": 24}
    assert "| mined | 28.0 | 20.0 | +4.0 [-21.4, +29.4] | +0.0 [+0.0, +0.0] | +2.0 [-10.7, +14.7] |" in markdown(result)
    assert "50 unseen scenes" in markdown(result)


def test_one_seed_has_no_interval() -> None:
    result = compare([summary((30, 20), (28, 20))])
    row = next(row for row in result["rows"] if row["name"] == "mined")
    assert row["repair_minus"]["i2t"] == [2, None, None]
    json.dumps(result, allow_nan=False)
    assert "| +2.0 |" in markdown(result)
