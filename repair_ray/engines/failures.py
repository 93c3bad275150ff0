"""Which neighbours of a query are failures: what ranks high and does not belong to it (methods, 1.1)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from repair_ray.evaluation.positives import Answers
from repair_ray.evaluation.retrieval import TIE

TopK = Callable[[np.ndarray, int], tuple[np.ndarray, np.ndarray]]
# Queries are searched together up to these numbers of positives, so that one with thousands deepens no other's search.
DEPTHS = (8, 64, 512, 4096)
RESULT_BYTES = 2**27


@dataclass(frozen=True)
class Found:
    """Failures of a batch, ordered by query and rank, as arrays of one length, and the queries without one.

    `query` and `bare` count within the batch; `candidate` and `truth` are gallery indices; `rank` is int32, from 1;
    scores are float32. Of the `bare` queries those of `unanswered` have no positive in the gallery at all.
    """

    query: np.ndarray
    candidate: np.ndarray
    rank: np.ndarray
    score: np.ndarray
    truth: np.ndarray
    truth_score: np.ndarray
    bare: np.ndarray
    unanswered: np.ndarray


def find_failures(
    queries: np.ndarray,
    gallery: np.ndarray,
    positives: Answers,
    places: np.ndarray,
    top_k: TopK,
    *,
    k: int,
    per_query: int | None = None,
    above_gt: bool = False,
) -> Found:
    """The best false positives of a batch of queries, and the ground truth that each of them beats or nears.

    Args:
        queries, gallery: unit rows, float32 `[N, D]` and `[M, D]`.
        positives: what is right for each query of the whole set; `places`: where the batch's queries stand in it,
            int64 `[N]`.
        top_k: the search, as `Searcher.top_k`; deep enough that `k` false positives are left.
        k: false positives of one query at most, wherever they rank; `per_query`: fewer of them.
        above_gt: keep only what scores at least as high as the best ground truth.
    """
    counts = positives.counts(places)
    parts = []
    for rows in _alike(counts, k):
        depth = k + int(counts[rows].max(initial=0))
        found = _of_rows(
            queries[rows], gallery, positives, places[rows], top_k, depth, min(k, per_query or k), above_gt
        )
        parts.append((rows, found))
    query = np.concatenate([rows[found.query] for rows, found in parts])
    order = np.argsort(query, kind="stable")
    joined = {
        name: np.concatenate([getattr(found, name) for _, found in parts])[order]
        for name in ("candidate", "rank", "score", "truth", "truth_score")
    }
    bare, unanswered = (
        np.sort(np.concatenate([rows[getattr(found, name)] for rows, found in parts]))
        for name in ("bare", "unanswered")
    )
    return Found(query[order], **joined, bare=bare, unanswered=unanswered)


def _alike(counts: np.ndarray, k: int) -> list[np.ndarray]:
    """The rows of a batch, those together that are searched equally deep."""
    classes = np.searchsorted(DEPTHS, counts)
    made: list[np.ndarray] = []
    for number in np.unique(classes):
        rows = np.flatnonzero(classes == number)
        step = max(1, RESULT_BYTES // (24 * (k + int(counts[rows].max()))))
        made += np.split(rows, range(step, len(rows), step))
    return made or [np.zeros(0, np.int64)]


def _of_rows(
    queries: np.ndarray,
    gallery: np.ndarray,
    positives: Answers,
    places: np.ndarray,
    top_k: TopK,
    depth: int,
    most: int,
    above_gt: bool,
) -> Found:
    scores, found = top_k(queries, depth)
    owner, member = positives.flat(places)
    own, slot = _which(found, owner, member, len(gallery))
    truth_scores = np.einsum("ij,ij->i", gallery[member], queries[owner])
    if scores.shape[1]:
        # Products of pairs round otherwise than those of the search, by which ties are judged: a ground truth that was
        # found has the search's score, and one that ties with the last that was found has that one's.
        last = scores[owner, -1]
        truth_scores = np.where(np.abs(truth_scores - last) < TIE, np.minimum(truth_scores, last), truth_scores)
        truth_scores[slot[own]] = scores[own]
    best = _best(owner, member, truth_scores, len(queries))
    answered = best >= 0
    wrong = (found >= 0) & ~own & answered[:, None]
    kept = wrong & (np.cumsum(wrong, axis=1) <= most)
    best_score = np.where(answered, truth_scores[best] if len(truth_scores) else 0.0, np.float32(0.0))
    if above_gt:
        kept &= scores >= best_score[:, None]
    row, column = np.nonzero(kept)
    return Found(
        query=row,
        candidate=found[row, column],
        rank=(column + 1).astype(np.int32),
        score=scores[row, column],
        truth=member[best[row]] if len(member) else np.zeros(0, np.int64),
        truth_score=best_score[row].astype(np.float32),
        bare=np.flatnonzero(~kept.any(axis=1)),
        unanswered=np.flatnonzero(~answered),
    )


def _which(found: np.ndarray, owner: np.ndarray, member: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Whether each of `found` `[N, K]` belongs to its row, and its place among the pairs (owner, member), sorted."""
    if not len(owner) or not found.size:
        return np.zeros(found.shape, bool), np.zeros(found.shape, np.int64)
    pairs = owner * size + member
    asked = np.arange(len(found))[:, None] * size + found
    slot = np.minimum(np.searchsorted(pairs, asked), len(pairs) - 1)
    return (pairs[slot] == asked) & (found >= 0), slot


def _best(owner: np.ndarray, member: np.ndarray, scores: np.ndarray, rows: int) -> np.ndarray:
    """The pair with the best score of each row, the lower member where scores are alike; -1 where a row has none."""
    best = np.full(rows, -1, np.int64)
    order = np.lexsort((member, -scores, owner))
    firsts = np.flatnonzero(np.diff(owner[order], prepend=-1)) if len(order) else np.zeros(0, np.int64)
    best[owner[order][firsts]] = order[firsts]
    return best
