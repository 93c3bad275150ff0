"""The comparison over seeds on figures that can be worked out by hand, and one seed for real, a step long."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import claims_text
from benchmarks.claims_text import compare, markdown, objective_of, run


def seed(simcse: float, pm: float) -> dict[str, Any]:
    scores = {"untrained": 40.0, "simcse": simcse, "positive_mixing": pm}
    scores |= {"positive_mixing_fixed": 49.0, "hard_negative_mixing": 50.0, "both": 51.0}
    part = {"texts": 5000, "pairs": 900, "words": 80.0, "spearman": scores, "seconds": 1.0}
    return {"seed": 0, "made_by": {"steps": 120}, "data": {"world": part}}


def test_difference_of_two_seeds_by_hand() -> None:
    result = compare([seed(50, 52), seed(54, 60)])
    row = next(row for row in result["data"]["world"]["rows"] if row["name"] == "positive_mixing")
    # 2 and 6 points above: mean 4, deviation sqrt(8), half width 12.706 * 2.8284 / sqrt(2) = 25.41.
    assert row["minus_simcse"] == pytest.approx([4, 4 - 25.41, 4 + 25.41], abs=0.01)
    assert row["spearman"] == 56 and row["seeds"] == [52, 60]
    text = markdown(result)
    assert "| positive mixing | 56.0 | +4.0 [-21.4, +29.4] |" in text
    assert "| simcse | 52.0 |  |" in text and "| words in common | 80.0 |  |" in text
    assert "world: 5,000 texts, 900 pairs" in text


def test_one_seed_has_no_interval() -> None:
    result = compare([seed(50, 52)])
    json.dumps(result, allow_nan=False)
    assert "| positive mixing | 52.0 | +2.0 |" in markdown(result)


@pytest.mark.parametrize("variant", claims_text.VARIANTS)
def test_weights_of_each_variant_add_up_to_one(variant: str) -> None:
    objective = objective_of(variant)
    terms = (objective.positive_mixing, objective.hard_negative_mixing)
    assert objective.simcse_weight + sum(term.weight for term in terms if term is not None) == 1.0
    assert (objective.positive_mixing is not None) == ("positive" in variant or variant == "both")
    assert (objective.hard_negative_mixing is not None) == ("negative" in variant or variant == "both")


def test_a_seed_is_measured_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = claims_text.world(0, scenes=16, pairs=30)
    monkeypatch.setattr(claims_text, "_data", lambda seed: {"world": small})
    found = run(0, tmp_path, steps=1)
    scores = found["data"]["world"]["spearman"]
    assert set(scores) == {"untrained", *claims_text.VARIANTS}
    assert all(-100 <= score <= 100 for score in scores.values())
    assert len(set(scores.values())) > 1
    monkeypatch.setattr(claims_text, "train", lambda *_: pytest.fail("measured twice"))
    assert run(0, tmp_path, steps=1) == json.loads((tmp_path / "seed-0.json").read_text())
