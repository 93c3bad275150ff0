"""Exact nearest neighbours by inner product, over FAISS."""

from __future__ import annotations

import faiss
import numpy as np


class Searcher:
    """A flat inner-product index over unit vectors, searched shard by shard within a memory budget.

    Ties go to the lower gallery index, whatever the shards.
    """

    def __init__(self, gallery: np.ndarray, *, model: str, memory_bytes: int = 2 * 2**30) -> None:
        """Hold a gallery `[M, D]` float32 of unit rows.

        Raises:
            ValueError: a row is not finite or not of unit length; names the row.
        """
        self.model = model
        self._gallery = _checked(gallery, f"the gallery of {model}")
        self._shard = max(1, memory_bytes // (4 * max(1, gallery.shape[1])))

    def top_k(self, queries: np.ndarray, k: int, model: str | None = None) -> tuple[np.ndarray, np.ndarray]:
        """The `k` best of the gallery for each query `[N, D]`: scores float32 and indices int64, `[N, min(k, M)]`.

        Raises:
            ValueError: another dimension than the gallery's (names both models), or a bad row.
        """
        if queries.ndim != 2 or queries.shape[1] != self._gallery.shape[1]:
            raise ValueError(
                f"queries of {model or 'the retriever'} have dimension {queries.shape[-1]}, "
                f"the gallery of {self.model} has {self._gallery.shape[1]}: they come from different retrievers"
            )
        queries = _checked(queries, f"the queries of {model or self.model}")
        k = min(k, len(self._gallery))
        parts = [self._search(queries, start, k) for start in range(0, len(self._gallery), self._shard)]
        return (
            merge_top_k(parts, k)
            if parts
            else (np.zeros((len(queries), 0), np.float32), np.zeros((len(queries), 0), np.int64))
        )

    def _search(self, queries: np.ndarray, start: int, k: int) -> tuple[np.ndarray, np.ndarray]:
        shard = self._gallery[start : start + self._shard]
        index = faiss.IndexFlatIP(shard.shape[1])
        index.add(shard)
        wanted = min(k, len(shard))
        # FAISS breaks ties by its heap's order: ask for more until the last score is strictly below the k-th.
        depth = min(wanted + 1, len(shard))
        while True:
            scores, found = index.search(queries, depth)
            tied = scores[:, -1] == scores[:, wanted - 1]
            if depth == len(shard) or not tied.any():
                break
            depth = min(2 * depth, len(shard))
        return _ordered(scores, found + start, wanted)


def merge_top_k(parts: list[tuple[np.ndarray, np.ndarray]], k: int) -> tuple[np.ndarray, np.ndarray]:
    """Merge partial (scores, global indices), `[N, k_i]` each, into the exact top `k`; ties to the lower index."""
    scores = np.concatenate([part[0] for part in parts], axis=1)
    found = np.concatenate([part[1] for part in parts], axis=1)
    return _ordered(scores, found, min(k, scores.shape[1]))


def _ordered(scores: np.ndarray, found: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    order = np.lexsort((found, -scores), axis=1)[:, :k]
    return np.take_along_axis(scores, order, 1), np.take_along_axis(found, order, 1)


def _checked(vectors: np.ndarray, what: str) -> np.ndarray:
    vectors = np.ascontiguousarray(vectors, np.float32)
    norms = np.linalg.norm(vectors, axis=1)
    bad = np.flatnonzero(~(np.abs(norms - 1) < 1e-2))
    if len(bad):
        raise ValueError(f"{what}: row {bad[0]} has length {norms[bad[0]]:.4g}, unit vectors are needed")
    return vectors
