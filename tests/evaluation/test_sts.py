"""Spearman's correlation of cosines and scores: by hand, against scipy's own, and where there is no order."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from repair_ray.evaluation.sts import pair_cosines, shared_words, spearman, sts_metrics


def test_cosines_by_hand() -> None:
    first = np.array([[1.0, 0], [3, 4], [0, 0]], np.float32)
    second = np.array([[2.0, 0], [4, 3], [1, 0]], np.float32)
    assert pair_cosines(first, second).tolist() == pytest.approx([1.0, 24 / 25, 0.0])


def test_spearman_by_hand() -> None:
    # Ranks of the similarities 1 2 3 4, of the scores 1 3 2 4: 1 - 6 * (1 + 1) / (4 * 15) = 0.8.
    assert spearman(np.array([0.1, 0.2, 0.3, 0.4]), np.array([0.0, 2, 1, 5])) == pytest.approx(80)
    assert spearman(np.array([0.4, 0.3, 0.2]), np.array([1.0, 2, 3])) == pytest.approx(-100)


@pytest.mark.parametrize("seed", range(3))
def test_equals_scipy_with_ties(seed: int) -> None:
    draw = np.random.default_rng(seed)
    similarities, scores = draw.integers(0, 9, 60) / 9, draw.integers(0, 6, 60).astype(float)
    expected = 100 * stats.spearmanr(similarities, scores).statistic
    found = sts_metrics(similarities, scores, bootstrap=200)
    assert found["n"] == 60
    assert found["spearman"] == pytest.approx(expected, abs=1e-3)
    assert found["spearman_ci"][0] < expected < found["spearman_ci"][1]


def test_interval_has_the_width_of_resampled_pairs() -> None:
    draw = np.random.default_rng(0)
    scores = draw.normal(size=200)
    similarities = scores + draw.normal(size=200)
    low, high = sts_metrics(similarities, scores, bootstrap=2000)["spearman_ci"]
    resampled = []
    for _ in range(2000):
        rows = draw.integers(0, 200, 200)
        resampled.append(100 * stats.spearmanr(similarities[rows], scores[rows]).statistic)
    assert [low, high] == pytest.approx(np.percentile(resampled, (2.5, 97.5)), abs=1.0)
    assert sts_metrics(similarities, scores, bootstrap=2000)["spearman_ci"] == [low, high]


@pytest.mark.parametrize(
    ("similarities", "scores"),
    [
        ([0.5, 0.5, 0.5], [1.0, 2, 3]),  # constant embeddings
        ([0.1, 0.2, 0.3], [2.0, 2, 2]),
        ([0.1, np.nan, 0.3], [1.0, 2, 3]),
        ([0.1, 0.2], [1.0, 2]),
        ([], []),
    ],
)
def test_no_order_is_no_figure(similarities: list[float], scores: list[float]) -> None:
    found = sts_metrics(np.array(similarities), np.array(scores), bootstrap=50)
    assert found == {"n": len(scores), "spearman": None, "spearman_ci": None}


def test_few_pairs_have_a_finite_interval() -> None:
    found = sts_metrics(np.array([0.1, 0.2, 0.4]), np.array([1.0, 3, 2]), bootstrap=500)
    assert found["spearman"] == pytest.approx(50)
    assert np.isfinite(found["spearman_ci"]).all()


def test_shared_words_by_hand() -> None:
    # {a, red, circle} and {a, circle, left}: 2 * 2 / 6. Case and marks count nothing.
    pairs = [("A red circle.", "a circle, left"), ("x", "y"), ("", "")]
    assert shared_words(pairs).tolist() == pytest.approx([2 / 3, 0.0, 1.0])
