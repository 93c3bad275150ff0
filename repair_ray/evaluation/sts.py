"""Semantic textual similarity: do cosines rank pairs of sentences as people do? Pure arrays in, figures out."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import stats

# With fewer pairs the ranks of a resample say nothing.
MIN_PAIRS = 3
BATCH = 64


def pair_cosines(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Cosine of each row of `[N, D]` with the same row of the other, float64 `[N]`; 0 where a row has no length."""
    one, other = np.asarray(first, np.float64), np.asarray(second, np.float64)
    lengths = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
    return np.divide((one * other).sum(1), lengths, out=np.zeros(len(one)), where=lengths > 0)


def spearman(similarities: np.ndarray, scores: np.ndarray) -> float | None:
    """Spearman's correlation x 100 of similarities `[N]` and people's scores `[N]`, ties at their mean rank.

    None where there is no order to compare: fewer than three pairs, all similarities or all scores the same, or one
    that is not finite.
    """
    if len(scores) < MIN_PAIRS or not np.isfinite(similarities).all():
        return None
    if np.ptp(similarities) == 0 or np.ptp(scores) == 0:
        return None
    return 100 * float(_correlation(similarities, scores))


def sts_metrics(similarities: np.ndarray, scores: np.ndarray, bootstrap: int = 1000, seed: int = 0) -> dict[str, Any]:
    """`n`, `spearman` (x 100) and `spearman_ci`, its 95 % percentile bootstrap interval over pairs.

    Both figures are None where `spearman` is.
    """
    found = spearman(similarities, scores)
    if found is None:
        return {"n": len(scores), "spearman": None, "spearman_ci": None}
    rng = np.random.default_rng(seed)
    drawn: list[np.ndarray] = []
    for start in range(0, bootstrap, BATCH):
        rows = rng.integers(0, len(scores), (min(BATCH, bootstrap - start), len(scores)))
        drawn.append(_correlation(similarities[rows], scores[rows]))
    # A resample of one pair over and over has no order; with few pairs that happens.
    bounds = 100 * np.nanpercentile(np.concatenate(drawn), (2.5, 97.5))
    return {"n": len(scores), "spearman": round(found, 3), "spearman_ci": [round(float(end), 3) for end in bounds]}


def _correlation(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Spearman's: Pearson's correlation of the ranks along the last axis; NaN where one side has a single value."""
    one, other = (stats.rankdata(part, axis=-1) for part in (x, y))
    one, other = (ranks - ranks.mean(-1, keepdims=True) for ranks in (one, other))
    below = np.sqrt((one**2).sum(-1) * (other**2).sum(-1))
    with np.errstate(invalid="ignore", divide="ignore"):
        return (one * other).sum(-1) / below


def shared_words(pairs: Sequence[tuple[str, str]]) -> np.ndarray:
    """Dice coefficient of the words of two texts, float64 `[N]`: what an order by words alone would be (ours)."""
    return np.array([_dice(*(set(re.findall(r"\w+", text.casefold())) for text in pair)) for pair in pairs])


def _dice(one: set[str], other: set[str]) -> float:
    return 2 * len(one & other) / (len(one) + len(other)) if one or other else 1.0
