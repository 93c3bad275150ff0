"""Full-ranking retrieval metrics: R@1/5/10 and MRR in both directions, any-of over positives, pessimistic ties."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
    ranks = np.zeros(len(queries), np.int64)
    for query, scores in score_rows(queries, gallery, memory_bytes):
        own = positives[query]
        if len(own):
            best = scores[own].max() - TIE
            # "not below" rather than "at least": features that are not finite rank last, not first.
            wrong = np.count_nonzero(~(scores < best)) - np.count_nonzero(~(scores[own] < best))
            ranks[query] = 1 + wrong
    return ranks


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
