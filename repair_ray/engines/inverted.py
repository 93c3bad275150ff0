"""Approximate nearest neighbours by inner product: FAISS's inverted lists, and what they miss."""

from __future__ import annotations

from pathlib import Path

import faiss
import numpy as np

from repair_ray.engines.searcher import ordered
from repair_ray.evaluation.retrieval import TIE

# Of k-means, which FAISS never gives more rows than this for each list.
TRAINING_ROWS_PER_LIST = 256
_ADDED_ROWS = 65_536


def default_lists(rows: int) -> int:
    """As many lists as FAISS's guidelines advise: 4 times the square root of the rows, 39 rows a list at least."""
    return max(1, min(int(4 * rows**0.5), rows // 39))


def build_inverted(gallery: np.ndarray, path: Path, lists: int | None, seed: int) -> int:
    """Write an index of a gallery `[M, D]` float32 of unit rows to a file; returns its number of lists.

    K-means starts from `seed`, so that the same gallery gives the same lists.
    """
    lists = min(lists or default_lists(len(gallery)), len(gallery))
    width = gallery.shape[1]
    quantizer = faiss.IndexFlatIP(width)
    index = faiss.IndexIVFFlat(quantizer, width, lists, faiss.METRIC_INNER_PRODUCT)
    index.cp.seed = seed
    index.cp.min_points_per_centroid = 1
    index.cp.max_points_per_centroid = TRAINING_ROWS_PER_LIST
    index.cp.spherical = True
    wanted = min(len(gallery), lists * TRAINING_ROWS_PER_LIST)
    rows = np.sort(np.random.default_rng(seed).choice(len(gallery), wanted, replace=False))
    index.train(gallery[rows])
    for start in range(0, len(gallery), _ADDED_ROWS):
        index.add(gallery[start : start + _ADDED_ROWS])
    faiss.write_index(index, str(path))
    return lists


class InvertedSearcher:
    """Searches the lists nearest to a query. The file is mapped, so that all processes of a node share one copy."""

    def __init__(self, path: Path, probes: int) -> None:
        """`probes`: lists that are searched for each query."""
        self._index: faiss.IndexIVFFlat = faiss.read_index(str(path), faiss.IO_FLAG_MMAP)  # type: ignore[assignment]
        self._index.nprobe = probes

    def top_k(self, queries: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """As `Searcher.top_k`, of what the probed lists hold; index -1 where they hold fewer than `k`."""
        return ordered(*self._index.search(np.ascontiguousarray(queries, np.float32), min(k, self._index.ntotal)), k)


def recall(exact: np.ndarray, found: np.ndarray) -> float:
    """The share of the K nearest that was found, by scores `[N, K]`, best first, of the exact and of another search.

    What ties with the last of the exact neighbours is as good as it.
    """
    return float((found >= exact[:, -1:] - TIE).mean())
