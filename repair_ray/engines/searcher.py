"""Exact nearest neighbours by inner product, over FAISS."""

from __future__ import annotations

import faiss
import numpy as np

# FAISS has a product of its own for small batches, which rounds otherwise. With BLAS alone an item's score is the same
# whatever the batch, the piece of the gallery and the number of threads, and so are ties.
faiss.cvar.distance_compute_blas_threshold = 0

# Scores and indices that are held at a time while ties are settled.
RESULT_BYTES = 2**27
# What FAISS's GPU kernels can return for one query.
GPU_MAX_K = 2048
_CHECKED_ROWS = 65_536


class Searcher:
    """The rows of a gallery of unit vectors by inner product, searched piece by piece within a memory budget.

    The gallery is neither copied nor indexed, so one that is mapped from a file takes no memory of its own. Ties go to
    the lower gallery index, whatever the pieces.
    """

    def __init__(
        self,
        gallery: np.ndarray,
        *,
        model: str,
        memory_bytes: int = 2 * 2**30,
        first: int = 0,
        checked: bool = False,
        gpu: bool = False,
    ) -> None:
        """Hold a gallery `[M, D]` float32 of unit rows.

        Args:
            memory_bytes: features of one piece.
            first: index of the gallery's first row, where it is a shard of a larger one.
            checked: whether the rows are known to be of unit length.
            gpu: search on this process's GPU, with a FAISS that is built for it.

        Raises:
            ValueError: a row is not finite or not of unit length; names the row.
        """
        self.model = model
        self._gallery = np.ascontiguousarray(gallery, np.float32)
        self._first = first
        self._gpu = faiss.StandardGpuResources() if gpu else None
        if not checked:
            check_unit(self._gallery, f"the gallery of {model}")
        self._piece = max(1, memory_bytes // (4 * max(1, gallery.shape[1])))

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
        queries = np.ascontiguousarray(queries, np.float32)
        check_unit(queries, f"the queries of {model or self.model}")
        k = min(k, len(self._gallery))
        if not len(queries) or not k:
            return np.zeros((len(queries), k), np.float32), np.zeros((len(queries), k), np.int64)
        best: tuple[np.ndarray, np.ndarray] | None = None
        for start in range(0, len(self._gallery), self._piece):
            part = self._search(queries, self._gallery[start : start + self._piece], k)
            part = part[0], part[1] + (start + self._first)
            best = part if best is None else merge_top_k([best, part], k)
        assert best is not None
        return best

    def _search(self, queries: np.ndarray, piece: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        wanted = min(k, len(piece))
        # FAISS breaks ties by its heap's order: ask for one more, and deeper where the last two are alike.
        depth = min(wanted + 1, len(piece))
        scores, found = ordered(*self._nearest(queries, piece, depth), wanted)
        open_rows = np.flatnonzero(scores[:, -1] == scores[:, wanted - 1]) if depth < len(piece) else np.zeros(0, int)
        scores, found = scores[:, :wanted], found[:, :wanted]
        while len(open_rows):
            depth = min(2 * depth, len(piece))
            left = []
            step = max(1, RESULT_BYTES // (12 * depth))
            for rows in np.split(open_rows, range(step, len(open_rows), step)):
                deeper, items = ordered(*self._nearest(queries[rows], piece, depth), wanted)
                scores[rows], found[rows] = deeper[:, :wanted], items[:, :wanted]
                if depth < len(piece):
                    left.append(rows[deeper[:, -1] == deeper[:, wanted - 1]])
            open_rows = np.concatenate(left) if left else np.zeros(0, int)
        return scores, found

    def _nearest(self, queries: np.ndarray, piece: np.ndarray, depth: int) -> tuple[np.ndarray, np.ndarray]:
        if self._gpu is not None and depth <= GPU_MAX_K:
            return faiss.knn_gpu(self._gpu, queries, piece, depth, metric=faiss.METRIC_INNER_PRODUCT)
        return faiss.knn(queries, piece, depth, metric=faiss.METRIC_INNER_PRODUCT)


def has_gpu() -> bool:
    """Whether the FAISS that is installed here can use a GPU. The usual package for CPUs cannot."""
    return hasattr(faiss, "StandardGpuResources")


def merge_top_k(parts: list[tuple[np.ndarray, np.ndarray]], k: int) -> tuple[np.ndarray, np.ndarray]:
    """Merge partial (scores, global indices), `[N, k_i]` each, into the exact top `k`; ties to the lower index."""
    scores = np.concatenate([part[0] for part in parts], axis=1)
    found = np.concatenate([part[1] for part in parts], axis=1)
    order = np.lexsort((found, -scores), axis=1)[:, :k]
    return np.take_along_axis(scores, order, 1), np.take_along_axis(found, order, 1)


def ordered(scores: np.ndarray, found: np.ndarray, settled: int) -> tuple[np.ndarray, np.ndarray]:
    """Results `[N, K]` that are sorted by score, with ties among them by index.

    Rows without a tie in their first `settled` places stay as they are.
    """
    tied = np.flatnonzero((scores[:, 1:] == scores[:, :-1])[:, :settled].any(axis=1))
    if len(tied):
        order = np.lexsort((found[tied], -scores[tied]), axis=1)
        scores[tied] = np.take_along_axis(scores[tied], order, 1)
        found[tied] = np.take_along_axis(found[tied], order, 1)
    return scores, found


def check_unit(vectors: np.ndarray, what: str, first: int = 0) -> None:
    """Raises `ValueError` that names the first row of `[N, D]` that is not of unit length; `first`: its first row."""
    for start in range(0, len(vectors), _CHECKED_ROWS):
        rows = vectors[start : start + _CHECKED_ROWS]
        norms = np.sqrt(np.einsum("ij,ij->i", rows, rows))
        bad = np.flatnonzero(~(np.abs(norms - 1) < 1e-2))
        if len(bad):
            row = int(bad[0])
            raise ValueError(f"{what}: row {first + start + row} has length {norms[row]:.4g}, unit vectors are needed")
