"""Full-ranking retrieval metrics: R@1/5/10 and MRR in both directions, any-of over positives, pessimistic ties."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from repair_ray.evaluation.statistics import bootstrap_interval

TIE_RULE = "pessimistic: a tie with a wrong item ranks below it"
TIE = 1e-6
CUTS = (1, 5, 10)
MEMORY_BYTES = 2**28


def score_rows(
    queries: np.ndarray, gallery: np.ndarray, memory_bytes: int = MEMORY_BYTES
) -> Iterator[tuple[int, np.ndarray]]:
    """Each query's place with its scores `[M]` in float32; at most `memory_bytes` of scores exist at a time."""
    columns = np.ascontiguousarray(gallery.astype(np.float32, copy=False).T)
    chunk = max(1, memory_bytes // (4 * max(1, len(gallery))))
    for start in range(0, len(queries), chunk):
        scores = queries[start : start + chunk].astype(np.float32, copy=False) @ columns
        for row in range(len(scores)):
            yield start + row, scores[row]


@dataclass(frozen=True)
class Ranking:
    """What each of `N` queries found.

    `ranks` int64 `[N]`: see `best_ranks`. `best` int64 `[N]`: the gallery's place of the best positive, -1 for none;
    `best_scores` float32 `[N]`, NaN for none. `top` int64 and `top_scores` float32 `[N, K]`: the items ranked highest,
    best first; `top_right` bool `[N, K]`: whether each is a positive.
    """

    ranks: np.ndarray
    best: np.ndarray
    best_scores: np.ndarray
    top: np.ndarray
    top_scores: np.ndarray
    top_right: np.ndarray


def ranking(
    queries: np.ndarray,
    gallery: np.ndarray,
    positives: Sequence[np.ndarray],
    keep: int,
    memory_bytes: int = MEMORY_BYTES,
) -> Ranking:
    """The rank of each query's best positive (as `best_ranks` counts it), and the `keep` items ranked highest.

    The order of the items is that of the ranks: in a tie the wrong item stands first, then that of the lower place. So
    the first positive of a query of rank 3 is its third item.

    Args:
        queries, gallery: float32 `[N, D]`, `[M, D]`.
        positives: for each query the gallery indices that are right.
        keep: K; at most M are kept.
        memory_bytes: scores held at a time.
    """
    keep = min(keep, len(gallery))
    shape = (len(queries), keep)
    found = Ranking(
        np.zeros(len(queries), np.int64),
        np.full(len(queries), -1, np.int64),
        np.full(len(queries), np.nan, np.float32),
        np.zeros(shape, np.int64),
        np.zeros(shape, np.float32),
        np.zeros(shape, bool),
    )
    for query, scores in score_rows(queries, gallery, memory_bytes):
        own = positives[query]
        if len(own):
            found.ranks[query] = _rank(scores, own)
            found.best[query] = own[int(np.argmax(scores[own]))]
            found.best_scores[query] = scores[found.best[query]]
        if keep:
            right = np.zeros(len(scores), bool)
            right[own] = True
            top = _top(scores, right, keep)
            found.top[query], found.top_scores[query], found.top_right[query] = top, scores[top], right[top]
    return found


def best_ranks(
    queries: np.ndarray, gallery: np.ndarray, positives: Sequence[np.ndarray], memory_bytes: int = MEMORY_BYTES
) -> np.ndarray:
    """Rank of the best positive of each query: 1 + the number of other items that score at least as high.

    Scores within `TIE` of each other are ties: equal features may differ by the rounding of a matrix product.

    Args:
        queries, gallery: float32 `[N, D]`, `[M, D]`.
        memory_bytes: scores held at a time.
        positives: for each query the gallery indices that are right; other positives do not push a positive down.

    Returns:
        int64 `[N]`; 0 where a query has no positive at all.
    """
    return ranking(queries, gallery, positives, 0, memory_bytes).ranks


def _rank(scores: np.ndarray, own: np.ndarray) -> int:
    best = scores[own].max() - TIE
    # "not below" rather than "at least": features that are not finite rank last, not first.
    return 1 + int(np.count_nonzero(~(scores < best)) - np.count_nonzero(~(scores[own] < best)))


def _top(scores: np.ndarray, right: np.ndarray, keep: int) -> np.ndarray:
    """The places of the `keep` highest scores, pessimistic in ties and for scores that are no number, as `_rank` is."""
    lowered = np.where(np.isnan(scores), np.where(right, -np.inf, np.inf).astype(np.float32), scores)
    lowered[right] -= TIE
    limit = np.partition(lowered, len(lowered) - keep)[len(lowered) - keep]
    places = np.flatnonzero(lowered >= limit)
    return places[np.lexsort((places, right[places], -lowered[places]))][:keep]


def direction_metrics(ranks: np.ndarray, bootstrap: int = 1000, seed: int = 0) -> dict[str, Any]:
    """R@K and MRR in percent with a 95 % bootstrap interval of R@1; queries without a positive are counted apart."""
    scored = ranks[ranks > 0]
    if not len(scored):
        raise ValueError("no query has a positive in the gallery: nothing to evaluate")
    hits = (scored == 1).astype(np.float64)
    low, high = bootstrap_interval(hits, bootstrap, seed)
    return {
        **{f"r@{k}": round(100 * float((scored <= k).mean()), 3) for k in CUTS},
        "mrr": round(100 * float((1 / scored).mean()), 3),
        "r@1_ci": [round(100 * low, 3), round(100 * high, 3)],
        "n": len(scored),
        "skipped": int((ranks == 0).sum()),
    }


def retrieval_metrics(
    images: np.ndarray,
    captions: np.ndarray,
    captions_of_image: Sequence[np.ndarray],
    images_of_caption: Sequence[np.ndarray],
    *,
    bootstrap: int = 1000,
    seed: int = 0,
) -> dict[str, dict[str, Any]]:
    """Metrics of both directions, `{"i2t": {...}, "t2i": {...}}`, from unit features `[N, D]` and `[M, D]`.

    Raises:
        ValueError: no query of a direction has a positive.
    """
    i2t = best_ranks(images, captions, captions_of_image)
    t2i = best_ranks(captions, images, images_of_caption)
    return {"i2t": direction_metrics(i2t, bootstrap, seed), "t2i": direction_metrics(t2i, bootstrap, seed)}
