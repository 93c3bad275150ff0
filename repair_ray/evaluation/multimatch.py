"""Retrieval where a query has many right answers: mAP@K, mAP@R, R-Precision and R@K, from features or from rankings.

All of it is computed from the ranks of a query's positives, under the tie rule of `retrieval`: a wrong item that ties
with a positive stands above it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Any, Literal, get_args

import numpy as np

from repair_ray.evaluation.retrieval import CUTS, MEMORY_BYTES, TIE, score_rows

Denominator = Literal["min", "positives"]
DENOMINATORS: dict[str, str] = {"min": "min(K, positives)", "positives": "positives"}
DEPTH = 20


def positive_ranks(
    queries: np.ndarray,
    gallery: np.ndarray,
    positives: Sequence[np.ndarray],
    memory_bytes: int = MEMORY_BYTES,
    ignored: Sequence[np.ndarray] | None = None,
) -> list[np.ndarray]:
    """The ranks of all positives of each query, ascending; the first is `best_ranks`'.

    The j-th best positive has rank j + the number of wrong items that do not score below it.

    Args:
        queries, gallery: float32 `[N, D]`, `[M, D]`.
        positives: for each query the gallery indices that are right, each once.
        ignored: for each query the gallery indices that count as not there (junk, as in Oxford5k's protocol).

    Returns:
        int64 `[positives]` for each query; empty where a query has none.
    """
    found: list[np.ndarray] = [np.zeros(0, np.int64)] * len(queries)
    for query, scores in score_rows(queries, gallery, memory_bytes):
        right = scores[positives[query]]
        if ignored is not None:
            scores = np.delete(scores, ignored[query])
        # NaN first: then no positive of such a query ranks above what `best_ranks` says.
        right = right[np.lexsort((-right, ~np.isnan(right)))]
        wrong = [np.count_nonzero(~(scores < own - TIE)) - np.count_nonzero(~(right < own - TIE)) for own in right]
        found[query] = np.arange(1, len(right) + 1) + np.maximum.accumulate(np.array(wrong, np.int64))
    return found


def ranks_in_ranking(ranking: Sequence[Hashable], positives: Sequence[Hashable]) -> np.ndarray:
    """The ranks of the positives that are in a given ranking (best first), ascending int64.

    Raises:
        ValueError: an item comes twice, which would count one hit as two.
    """
    if len(set(ranking)) != len(ranking):
        twice, _ = Counter(ranking).most_common(1)[0]
        raise ValueError(f"the ranking holds {twice!r} more than once")
    wanted = set(positives)
    return np.array([place for place, item in enumerate(ranking, start=1) if item in wanted], np.int64)


def average_precision(ranks: np.ndarray, positives: int, k: int, denominator: Denominator = "min") -> float:
    """AP@K of one query: the sum of precision at each hit within K, over `min(K, positives)` or `positives`."""
    hits = ranks[ranks <= k]
    below = min(k, positives) if denominator == "min" else positives
    return float((np.arange(1, len(hits) + 1) / hits).sum() / below)


def average_precision_at_r(ranks: np.ndarray, positives: int) -> float:
    """AP@R of one query, R being the number of its positives: mean over r = 1..R of precision at r, 0 where r is no
    hit (ECCV Caption, arXiv 2204.03359)."""
    return average_precision(ranks, positives, positives)


def r_precision(ranks: np.ndarray, positives: int) -> float:
    """The share of positives among the first R, R being their number."""
    return float(np.count_nonzero(ranks <= positives) / positives)


def multimatch_metrics(
    ranks: Sequence[np.ndarray],
    positives: Sequence[int] | None = None,
    *,
    k: int = DEPTH,
    denominator: Denominator = "min",
) -> dict[str, Any]:
    """Metrics of one direction in percent, over the queries that have a positive; `skipped` counts the others.

    `r@K`: some positive is within K (as in CLIP's papers). `recall@K`: the share of a query's positives within K.

    Args:
        ranks: for each query the ranks of its positives, ascending.
        positives: how many each query has, where a ranking was cut and some have no rank; None: all have one.

    Raises:
        ValueError: no query has a positive; another number of queries; an unknown denominator.
    """
    if denominator not in get_args(Denominator):
        raise ValueError(f"denominator {denominator!r} is none of {', '.join(get_args(Denominator))}")
    numbers = [len(own) for own in ranks] if positives is None else list(positives)
    pairs = [(own, number) for own, number in zip(ranks, numbers, strict=True) if number]
    if not pairs:
        raise ValueError("no query has a positive in the gallery: nothing to evaluate")
    best = np.array([own[0] if len(own) else np.inf for own, _ in pairs])
    counts = np.array([number for _, number in pairs])
    cuts = sorted({*CUTS, k})
    found = {
        f"map@{k}": _percent([average_precision(own, number, k, denominator) for own, number in pairs]),
        "map@r": _percent([average_precision_at_r(own, number) for own, number in pairs]),
        "r_precision": _percent([r_precision(own, number) for own, number in pairs]),
        **{f"r@{cut}": _percent(best <= cut) for cut in cuts},
        **{f"recall@{cut}": _percent([np.count_nonzero(own <= cut) / number for own, number in pairs]) for cut in cuts},
        "mrr": _percent(1 / best),
    }
    return {
        **found,
        "n": len(pairs),
        "skipped": len(ranks) - len(pairs),
        "positives": {"min": int(counts.min()), "mean": round(float(counts.mean()), 3), "max": int(counts.max())},
    }


def _percent(values: Any) -> float:
    return round(100 * float(np.mean(values)), 3)
