"""Failures of a batch against a full sort, query by query."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from repair_ray.engines.failures import find_failures
from repair_ray.engines.searcher import Searcher, merge_top_k
from repair_ray.evaluation.positives import Answers

Row = tuple[int, int, int, float, int, float]


def lattice(rows: int, seed: int) -> np.ndarray:
    """Unit vectors whose inner products are exact in float32, with many ties."""
    return np.random.default_rng(seed).choice(np.array([-0.5, 0.5], np.float32), (rows, 4))


def random_answers(queries: int, gallery: int, seed: int, most: int = 4) -> Answers:
    rng = np.random.default_rng(seed)
    classes = max(1, queries // 2)
    members = [
        np.sort(rng.choice(gallery, rng.integers(0, min(most, gallery) + 1), replace=False)) for _ in range(classes)
    ]
    starts = np.cumsum([0, *map(len, members)])
    return Answers(rng.integers(0, classes, queries), starts, np.concatenate(members).astype(np.int64))


def by_full_sort(
    queries: np.ndarray, gallery: np.ndarray, positives: Answers, k: int, per_query: int | None, above_gt: bool
) -> list[Row]:
    made: list[Row] = []
    for number, query in enumerate(queries):
        scores = (gallery.astype(np.float64) @ query.astype(np.float64)).tolist()
        own = positives[number].tolist()
        if not own:
            continue
        truth = min(own, key=lambda item: (-scores[item], item))
        order = sorted(range(len(gallery)), key=lambda item: (-scores[item], item))
        wrong = [(rank, item) for rank, item in enumerate(order, 1) if item not in own][: min(k, per_query or k)]
        made += [
            (number, item, rank, scores[item], truth, scores[truth])
            for rank, item in wrong
            if not above_gt or scores[item] >= scores[truth]
        ]
    return made


def rows_of(found: Any) -> list[Row]:
    names = ("query", "candidate", "rank", "score", "truth", "truth_score")
    return list(zip(*(getattr(found, name).tolist() for name in names), strict=True))


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 10**6),
    st.integers(1, 12),
    st.integers(1, 30),
    st.integers(1, 6),
    st.none() | st.integers(1, 6),
    st.booleans(),
)
def test_equals_a_full_sort_with_ties(seed: int, n: int, m: int, k: int, per_query: int | None, above: bool) -> None:
    queries, gallery = lattice(n, seed), lattice(m, seed + 1)
    positives = random_answers(n, m, seed)
    top_k = Searcher(gallery, model="m", memory_bytes=16 * (1 + seed % 9)).top_k
    found = find_failures(queries, gallery, positives, np.arange(n), top_k, k=k, per_query=per_query, above_gt=above)
    expected = by_full_sort(queries, gallery, positives, k, per_query, above)
    assert rows_of(found) == expected
    assert found.bare.tolist() == sorted(set(range(n)) - {row[0] for row in expected})
    assert found.unanswered.tolist() == [q for q in range(n) if not len(positives[q])]
    assert found.rank.dtype == np.int32 and found.score.dtype == found.truth_score.dtype == np.float32


def test_equals_a_full_sort_on_dense_features_for_a_part_of_the_queries() -> None:
    rng = np.random.default_rng(0)
    queries, gallery = (rng.normal(size=(rows, 24)) for rows in (40, 90))
    queries, gallery = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (queries, gallery))
    queries, gallery = queries.astype(np.float32), gallery.astype(np.float32)
    positives = random_answers(40, 90, 1, most=20)  # classes of several depths
    places = np.array([3, 7, 8, 20, 39])
    found = find_failures(queries[places], gallery, positives, places, Searcher(gallery, model="m").top_k, k=5)
    mine = Answers(positives.kind[places], positives.starts, positives.members)
    expected = by_full_sort(queries[places], gallery, mine, 5, None, False)
    assert [row[:3] for row in rows_of(found)] == [row[:3] for row in expected]
    assert [row[4] for row in rows_of(found)] == [row[4] for row in expected]
    for column in (3, 5):
        np.testing.assert_allclose(
            [row[column] for row in rows_of(found)], [row[column] for row in expected], atol=1e-6
        )


def test_a_duplicate_of_the_ground_truth_ties_with_it() -> None:
    # The product of the pair alone and the search's may differ in the last digit; a copy must count all the same.
    rng = np.random.default_rng(0)
    gallery = rng.normal(size=(64, 512)).astype(np.float32)
    gallery /= np.linalg.norm(gallery, axis=1, keepdims=True)
    gallery[32:] = gallery[:32]
    queries = gallery[:32] + 0.1 * gallery[np.roll(np.arange(32), 1)]
    queries /= np.linalg.norm(queries, axis=1, keepdims=True)
    positives = Answers(np.arange(32), np.arange(33), np.arange(32))
    top_k = Searcher(gallery, model="m").top_k
    found = find_failures(queries, gallery, positives, np.arange(32), top_k, k=5, above_gt=True)
    assert found.candidate.tolist() == list(range(32, 64)) and found.rank.tolist() == [2] * 32
    assert np.array_equal(found.score, found.truth_score)


@pytest.mark.parametrize("shards", [1, 2, 3, 7])
def test_shards_change_not_a_bit(shards: int) -> None:
    rng = np.random.default_rng(1)
    queries, gallery = (rng.normal(size=(rows, 48)).astype(np.float32) for rows in (30, 101))
    for vectors in (queries, gallery):
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    gallery[50:60] = gallery[:10]
    bounds = [len(gallery) * part // shards for part in range(shards + 1)]
    parts = [
        Searcher(gallery[start:end], model="m", first=start, memory_bytes=4 * 48 * 5) for start, end in pairwise(bounds)
    ]

    def split(asked: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        return merge_top_k([part.top_k(asked, k) for part in parts], k)

    positives = random_answers(30, 101, 2)
    mine = partial(find_failures, queries, gallery, positives, np.arange(30), k=6)
    assert rows_of(mine(split)) == rows_of(mine(Searcher(gallery, model="m").top_k))


def test_an_approximate_search_that_finds_too_few() -> None:
    gallery = lattice(6, 0)
    positives = Answers(np.array([0, 0]), np.array([0, 1]), np.array([5]))

    def top_k(asked: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        lowest = np.finfo(np.float32).min
        return np.array([[0.5, lowest, lowest]], np.float32).repeat(2, 0), np.array([[2, -1, -1]]).repeat(2, 0)

    found = find_failures(lattice(2, 1), gallery, positives, np.arange(2), top_k, k=2)
    assert found.candidate.tolist() == [2, 2] and found.truth.tolist() == [5, 5]
    expected = [float(gallery[5] @ query) for query in lattice(2, 1)]
    assert found.truth_score.tolist() == expected, "not that of the empty places"


def test_no_query() -> None:
    gallery = lattice(5, 0)
    none = np.zeros(0, np.int64)
    found = find_failures(
        np.zeros((0, 4), np.float32), gallery, random_answers(3, 5, 0), none, Searcher(gallery, model="m").top_k, k=2
    )
    assert rows_of(found) == [] and len(found.bare) == 0
