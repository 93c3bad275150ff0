"""Is one retriever better than another on the same queries? From their ranks: paired bootstrap, and McNemar's test."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import stats

from repair_ray.evaluation.retrieval import CUTS

MEASURES = (*(f"r@{k}" for k in CUTS), "mrr")
DIRECTIONS = ("i2t", "t2i")
RESAMPLES = 2000
SHOWN = 3
Ranks = dict[str, int]


class QueryError(ValueError):
    """Two sets of ranks are not of the same queries; the message names what differs."""


def paired(first: Ranks, second: Ranks, names: tuple[str, str], direction: str) -> tuple[np.ndarray, np.ndarray]:
    """The ranks of the same queries in the same order, int64 `[N]` each; those without a positive are left out.

    Raises:
        QueryError: other queries, or queries that have a positive in one alone.
    """
    _same(set(first), set(second), names, f"{direction} queries")
    answered = {query for query, rank in first.items() if rank}
    _same(answered, {query for query, rank in second.items() if rank}, names, f"{direction} queries with a positive")
    queries = sorted(answered)
    if len(queries) < 2:
        raise QueryError(f"{len(queries)} {direction} queries have a positive: too few to compare")
    before, after = (np.array([one[query] for query in queries], np.int64) for one in (first, second))
    return before, after


def _same(first: set[str], second: set[str], names: tuple[str, str], what: str) -> None:
    if first == second:
        return
    parts = [
        f"{len(only)} only in {name}, such as {', '.join(sorted(only)[:SHOWN])}"
        for name, only in zip(names, (first - second, second - first), strict=True)
        if only
    ]
    raise QueryError(f"{names[0]} and {names[1]} have other {what}: {'; '.join(parts)}")


def gains(ranks: np.ndarray) -> np.ndarray:
    """What each query adds to each of `MEASURES`, float64 `[measures, N]` in [0, 1]."""
    return np.stack([*((ranks <= k).astype(np.float64) for k in CUTS), 1 / ranks])


def compare(
    first: dict[str, Ranks],
    second: dict[str, Ranks],
    names: tuple[str, str] = ("the first", "the second"),
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> dict[str, Any]:
    """Second minus first, in points of each measure, for both directions and for their mean.

    95 % percentile intervals of a paired bootstrap: queries are drawn with their ranks in both, and all measures from
    the same draws. `p`: twice the smaller share of draws on either side of no difference (with one draw added to each),
    so that p < 0.05 where the interval leaves 0 out. Queries count as independent; captions of one picture are less
    than that.

    Args:
        first, second: `{"i2t": {query id: rank of the best positive, 0 for none}, "t2i": {...}}`.

    Raises:
        QueryError: other queries.
    """
    differences = {}
    for direction in DIRECTIONS:
        before, after = paired(first[direction], second[direction], names, direction)
        differences[direction] = gains(after) - gains(before)
    samples = {d: (difference,) for d, difference in differences.items()} | {"mean": tuple(differences.values())}
    found: dict[str, dict[str, Any]] = {}
    for part, sample in samples.items():
        result = stats.bootstrap(
            sample,
            _mean_of_means,
            n_resamples=resamples,
            method="percentile",
            batch=64,
            axis=-1,
            rng=np.random.default_rng(seed),
        )
        means = _mean_of_means(*sample, axis=-1)
        draws = result.bootstrap_distribution
        bounds = result.confidence_interval
        found[part] = {
            measure: {
                "difference": _points(means[i]),
                "interval": [_points(bounds.low[i]), _points(bounds.high[i])],
                "p": round(_p(draws[i]), 5),
            }
            for i, measure in enumerate(MEASURES)
        }
        found[part]["n"] = [difference.shape[1] for difference in sample]
    return found


def changes(
    first: dict[str, Ranks], second: dict[str, Ranks], names: tuple[str, str] = ("the first", "the second")
) -> dict[str, dict[str, Any]]:
    """How many queries of each direction are right (rank 1) in one alone, in both, and in none.

    `fixed`: wrong in the first, right in the second. `broken`: the reverse. `p`: McNemar's test in its exact form, two-
    sided: whether `fixed` and `broken` are as a fair coin gives them (1 where no query has changed). McNemar, 1947.
    Queries count as independent; captions of one picture are less than that.

    Raises:
        QueryError: other queries.
    """
    found = {}
    for direction in DIRECTIONS:
        before, after = (ranks == 1 for ranks in paired(first[direction], second[direction], names, direction))
        fixed, broken = int(np.sum(~before & after)), int(np.sum(before & ~after))
        found[direction] = {
            "fixed": fixed,
            "broken": broken,
            "right_in_both": int(np.sum(before & after)),
            "wrong_in_both": int(np.sum(~before & ~after)),
            "p": float(stats.binomtest(fixed, fixed + broken).pvalue) if fixed + broken else 1.0,
        }
    return found


def _mean_of_means(*samples: np.ndarray, axis: int) -> np.ndarray:
    return np.mean([sample.mean(axis=axis) for sample in samples], axis=0)


def _p(draws: np.ndarray) -> float:
    below, above = np.count_nonzero(draws <= 0), np.count_nonzero(draws >= 0)
    return float(min(1.0, 2 * (min(below, above) + 1) / (len(draws) + 1)))


def _points(value: float) -> float:
    # 0.0 rather than -0.0.
    return round(100 * float(value), 3) + 0.0
