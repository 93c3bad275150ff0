"""Centroid-guided diversity sampling: k-means over picture features, then a quota for each cluster (DSMM-TBIR, arXiv
2608.10524, phase 1), so that rare kinds of pictures are in the gallery too."""

from __future__ import annotations

from typing import Literal

import faiss
import numpy as np

ROUNDS = 25


def cluster(features: np.ndarray, k: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Spherical k-means of unit vectors.

    Args:
        features: float32 `[N, D]`, unit rows.

    Returns:
        The cluster of each, int64 `[N]` in [0, k), and its cosine to that cluster's centroid, float32 `[N]`.

    Raises:
        ValueError: k is larger than N.
    """
    if k > len(features):
        raise ValueError(f"{k} clusters of {len(features)} pictures: k is larger than the pool")
    features = np.ascontiguousarray(features, np.float32)
    # FAISS draws samples of 256 a centroid, and warns where there are few.
    means = faiss.Kmeans(
        features.shape[1], k, niter=ROUNDS, seed=seed, spherical=True, min_points_per_centroid=1, verbose=False
    )
    means.train(features)
    similarity, own = means.assign(features)
    return own.astype(np.int64), similarity.astype(np.float32)


def quotas(sizes: np.ndarray, total: int) -> np.ndarray:
    """How many items each cluster gives, int64 `[k]`: equal shares; what a small one lacks, the larger ones give.

    The sum is `total`, or all there are. Shares that do not divide go to the largest clusters first.
    """
    given = np.zeros(len(sizes), np.int64)
    left = min(total, int(sizes.sum()))
    while left:
        open_ = np.flatnonzero(given < sizes)
        share = left // len(open_)
        if not share:
            largest = open_[np.lexsort((open_, -sizes[open_]))][:left]
            given[largest] += 1
            break
        more = np.minimum(share, sizes[open_] - given[open_])
        given[open_] += more
        left -= int(more.sum())
    return given


def sample_clusters(
    own: np.ndarray, similarity: np.ndarray, total: int, pick: Literal["nearest", "random"], seed: int
) -> np.ndarray:
    """Which items are sampled, bool `[N]`: `quotas` of each cluster, its nearest to the centroid or random ones.

    Args:
        own, similarity: as `cluster` gives them.
    """
    chosen = np.zeros(len(own), bool)
    draw = np.random.default_rng(seed)
    for number, quota in enumerate(quotas(np.bincount(own), total)):
        places = np.flatnonzero(own == number)
        order = np.lexsort((places, -similarity[places])) if pick == "nearest" else draw.permutation(len(places))
        chosen[places[order[:quota]]] = True
    return chosen
