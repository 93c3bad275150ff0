"""Agreement by hand and by independent formulas; what is not defined is None, never NaN."""

from __future__ import annotations

import json
import math
import random

import numpy as np
import pytest

from repair_ray.evaluation.agreement import (
    Judged,
    against_labels,
    agreement,
    between_annotators,
    consensus,
    flips,
    kappa,
    share,
)

FLOAT32_NINE_TENTHS = float(np.float32(0.9))


def rows(*counted: tuple[str, str, int]) -> tuple[list[str], list[str]]:
    """Two raters' judgements from a table of counts."""
    pairs = [(one, two) for one, two, n in counted for _ in range(n)]
    return [one for one, _ in pairs], [two for _, two in pairs]


def test_kappa_by_hand() -> None:
    # 50 items: 20 both valid, 5 valid/unsure, 10 unsure/valid, 15 both unsure. Observed: (20 + 15) / 50 = 0.7.
    # By chance: 25/50 * 30/50 + 25/50 * 20/50 = 0.3 + 0.2 = 0.5. Kappa: (0.7 - 0.5) / (1 - 0.5) = 0.4.
    first, second = rows(
        ("valid", "valid", 20), ("valid", "unsure", 5), ("unsure", "valid", 10), ("unsure", "unsure", 15)
    )
    assert kappa(first, second) == pytest.approx(0.4)
    assert kappa(second, first) == pytest.approx(0.4)


def test_kappa_against_the_disagreement_form() -> None:
    """1 - (observed disagreement) / (expected disagreement), from a matrix of shares."""
    rng = random.Random(3)
    names = ["valid", "benign_match", "bad_ground_truth", "unsure"]
    for _ in range(20):
        first = rng.choices(names, [5, 2, 1, 1], k=80)
        second = [name if rng.random() < 0.6 else rng.choice(names) for name in first]
        table = np.zeros((4, 4))
        for one, two in zip(first, second, strict=True):
            table[names.index(one), names.index(two)] += 1 / 80
        expected = np.outer(table.sum(1), table.sum(0))
        off = ~np.eye(4, dtype=bool)
        assert kappa(first, second) == pytest.approx(1 - table[off].sum() / expected[off].sum())


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ([], [], None),
        (["valid"] * 7, ["valid"] * 7, None),  # chance agrees always
        (["valid"] * 4, ["valid", "unsure"] * 2, 0.0),  # one rater says nothing
        (["valid", "unsure"], ["unsure", "valid"], -1.0),  # by chance 0.5, observed 0
        (["valid"] * 3, ["unsure"] * 3, 0.0),  # they never meet, and chance expects no more
    ],
)
def test_kappa_of_few_classes(first: list[str], second: list[str], expected: float | None) -> None:
    assert kappa(first, second) == expected


def test_kappa_needs_the_same_items() -> None:
    with pytest.raises(ValueError):
        kappa(["valid"], [])


@pytest.mark.parametrize(("hits", "of"), [(8, 10), (0, 10), (10, 10), (181, 200)])
def test_wilson_by_its_formula(hits: int, of: int) -> None:
    z, p = 1.959963985, hits / of
    middle = (p + z * z / (2 * of)) / (1 + z * z / of)
    half = z * math.sqrt(p * (1 - p) / of + z * z / (4 * of * of)) / (1 + z * z / of)
    found = share(hits, of)
    assert found["percent"] == pytest.approx(100 * p)
    assert found["interval"] == pytest.approx([100 * (middle - half), 100 * (middle + half)], abs=1e-3)


def test_wilson_by_hand() -> None:
    # 8 of 10: z^2 = 3.8415; middle (0.8 + 0.19207) / 1.38415 = 0.71674;
    # half 1.96 * sqrt(0.8 * 0.2 / 10 + 3.8415 / 400) / 1.38415 = 1.96 * 0.16002 / 1.38415 = 0.22659.
    assert share(8, 10)["interval"] == pytest.approx([49.02, 94.33], abs=0.01)
    assert share(0, 0) == {"hits": 0, "of": 0, "percent": None, "interval": None}


def judged(direction: str, judgement: str, label: str, n: int, confidence: float | None = None) -> list[Judged]:
    return [Judged(direction, judgement, confidence, label)] * n


def test_measures_by_hand() -> None:
    found = against_labels(
        [
            *judged("i2t", "valid", "valid", 6, 0.95),
            *judged("i2t", "valid", "benign_match", 2, 0.6),
            *judged("i2t", "unsure", "valid", 1, 0.5),
            *judged("t2i", "error", "valid", 3),
            *judged("t2i", "benign_match", "benign_match", 3, FLOAT32_NINE_TENTHS),
            *judged("t2i", "valid", "unsure", 1, 1.0),
        ]
    )
    total = found["total"]
    # Judged valid: 6 + 2 + 1 = 9, of which 6 are. Valid to people: 6 + 1 + 3 = 10, of which 6 were found.
    assert (total["precision"]["hits"], total["precision"]["of"]) == (6, 9)
    assert (total["recall"]["hits"], total["recall"]["of"]) == (6, 10)
    assert [total[name] for name in ("n", "abstained", "no_verdict", "people_unsure")] == [16, 1, 3, 1]
    # With a verdict: 13, of which 6 + 3 are equal. By chance, of 13 * 13 = 169: valid 9 * 7, benign_match 3 * 5,
    # unsure 1 * 1: 79. Kappa: (13 * 9 - 79) / (169 - 79) = 38 / 90.
    assert (total["agreement"]["n"], total["agreement"]["equal"]["hits"]) == (13, 9)
    assert total["agreement"]["kappa"] == pytest.approx(38 / 90, abs=1e-4)
    # Valid or not: 6 + 3 equal. By chance: 9 * 7 + 4 * 6 = 87. Kappa: (117 - 87) / (169 - 87) = 30 / 82.
    assert total["agreement"]["kappa_valid"] == pytest.approx(30 / 82, abs=1e-4)
    assert total["confusion"]["error"] == {"valid": 3, "benign_match": 0, "bad_ground_truth": 0, "unsure": 0}
    assert total["confusion"]["valid"] == {"valid": 6, "benign_match": 2, "bad_ground_truth": 0, "unsure": 1}
    assert found["i2t"]["recall"]["hits"] == 6 and found["i2t"]["recall"]["of"] == 7
    assert (found["t2i"]["precision"]["hits"], found["t2i"]["precision"]["of"]) == (0, 1)
    bins = [(b["low"], b["n"], b["equal"]["hits"], b["precision"]["of"]) for b in found["confidence"]]
    assert bins == [(0.5, 3, 0, 2), (0.9, 10, 9, 7)]


def test_nothing_is_nan() -> None:
    for given in ([], judged("i2t", "valid", "valid", 5), judged("t2i", "error", "unsure", 2)):
        found = against_labels(given)
        json.dumps(found, allow_nan=False)
        assert found["total"]["agreement"]["kappa"] is None
    assert against_labels([])["total"]["precision"]["percent"] is None


def test_annotators_and_where_they_agree() -> None:
    labels = {
        "ann": {"f1": "valid", "f2": "valid", "f3": "unsure"},
        "bob": {"f1": "valid", "f2": "benign_match", "f3": "unsure"},
        "cyd": {"f9": "valid"},
    }
    assert consensus(labels) == ({"f1": "valid", "f3": "unsure", "f9": "valid"}, ["f2"])
    (pair,) = between_annotators(labels)
    # By chance, of 9: valid 2 * 1, unsure 1 * 1: 3. Kappa: (3 * 2 - 3) / (9 - 3) = 0.5.
    assert (pair["first"], pair["second"], pair["n"], pair["kappa"]) == ("ann", "bob", 3, 0.5)
    assert pair["equal"]["percent"] == pytest.approx(66.667)


def test_flips_by_hand() -> None:
    first, second = rows(
        ("valid", "valid", 6), ("valid", "benign_match", 2), ("unsure", "valid", 1), ("unsure", "benign_match", 3)
    )
    found = flips(first, second)
    assert (found["from_valid"]["hits"], found["from_valid"]["of"]) == (2, 8)
    assert (found["to_valid"]["hits"], found["to_valid"]["of"]) == (1, 4)
    assert agreement(first, second)["equal"]["hits"] == 6
    assert found["confusion"]["unsure"]["benign_match"] == 3
