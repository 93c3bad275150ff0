"""Exact search against a full sort, with ties, shards and bad input."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from repair_ray.engines.searcher import Searcher, merge_top_k


def unit(rows: int, width: int, seed: int) -> np.ndarray:
    made = np.random.default_rng(seed).normal(size=(rows, width))
    return (made / np.linalg.norm(made, axis=1, keepdims=True)).astype(np.float32)


def lattice(rows: int, seed: int) -> np.ndarray:
    """Unit vectors whose inner products are exact in float32, with many ties: +-1/2 in each of four places."""
    return np.random.default_rng(seed).choice(np.array([-0.5, 0.5], np.float32), (rows, 4))


def sorted_top(queries: np.ndarray, gallery: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    scores = queries.astype(np.float64) @ gallery.astype(np.float64).T
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(scores, order, 1), order


TINY = 3 * 4 * 4  # three rows of four numbers


@pytest.mark.parametrize("memory", [2**31, 1, TINY, 10 * TINY])
@pytest.mark.parametrize("k", [1, 2, 5, 39, 40])
def test_ties_go_to_the_lower_index_whatever_the_shards(k: int, memory: int) -> None:
    queries, gallery = lattice(25, 0), lattice(40, 1)
    scores, found = Searcher(gallery, model="m", memory_bytes=memory).top_k(queries, k)
    expected_scores, expected = sorted_top(queries, gallery, k)
    assert np.array_equal(found, expected)
    assert np.array_equal(scores, expected_scores)
    assert scores.dtype == np.float32 and found.dtype == np.int64


def test_a_gallery_of_equal_rows() -> None:
    gallery = np.tile(unit(1, 32, 0), (200, 1))
    for memory in (2**31, 7 * 32 * 4):
        _, found = Searcher(gallery, model="m", memory_bytes=memory).top_k(gallery[:30], 6)
        assert np.array_equal(found, np.tile(np.arange(6), (30, 1)))


@pytest.mark.parametrize("memory", [2**31, 64 * 4 * 17])
def test_equals_full_sort_on_dense_features(memory: int) -> None:
    queries, gallery = unit(33, 64, 1), unit(500, 64, 2)
    scores, found = Searcher(gallery, model="m", memory_bytes=memory).top_k(queries, 20)
    expected_scores, expected = sorted_top(queries, gallery, 20)
    assert np.array_equal(found, expected)
    np.testing.assert_allclose(scores, expected_scores, atol=1e-6)


@pytest.mark.parametrize("memory", [2**31, 1])
def test_k_beyond_the_gallery_gives_all_of_it(memory: int) -> None:
    queries, gallery = lattice(3, 0), lattice(5, 1)
    scores, found = Searcher(gallery, model="m", memory_bytes=memory).top_k(queries, 99)
    assert scores.shape == found.shape == (3, 5)
    assert np.array_equal(found, sorted_top(queries, gallery, 5)[1])


def test_no_query_and_no_gallery() -> None:
    searcher = Searcher(unit(5, 4, 0), model="m")
    assert searcher.top_k(np.zeros((0, 4), np.float32), 3)[1].shape == (0, 3)
    scores, found = Searcher(np.zeros((0, 4), np.float32), model="m").top_k(unit(2, 4, 0), 3)
    assert scores.shape == found.shape == (2, 0)


def test_dimension_mismatch_names_both_models() -> None:
    searcher = Searcher(unit(5, 4, 0), model="ViT-B-32/old")
    with pytest.raises(ValueError, match=r"ViT-L-14/new have dimension 6.*ViT-B-32/old has 4.*different retrievers"):
        searcher.top_k(unit(2, 6, 0), 1, model="ViT-L-14/new")


@pytest.mark.parametrize("bad", [np.nan, np.inf, 0.0, 3.0])
def test_bad_rows_are_named(bad: float) -> None:
    vectors = unit(6, 4, 0)
    vectors[4] = bad
    with pytest.raises(ValueError, match="the gallery of base: row 4 has length"):
        Searcher(vectors, model="base")
    with pytest.raises(ValueError, match="the queries of base: row 4 has length"):
        Searcher(unit(5, 4, 1), model="base").top_k(vectors, 2)


def test_half_precision_unit_vectors_are_accepted() -> None:
    gallery = unit(50, 16, 0).astype(np.float16)
    _, found = Searcher(gallery, model="m").top_k(gallery[:5], 1)
    assert found[:, 0].tolist() == [0, 1, 2, 3, 4]


def test_merge_by_hand() -> None:
    left = np.array([[0.9, 0.5]], np.float32), np.array([[7, 3]])
    right = np.array([[0.9, 0.5, 0.1]], np.float32), np.array([[2, 9, 1]])
    scores, found = merge_top_k([left, right], 4)
    assert found.tolist() == [[2, 7, 3, 9]]
    assert scores.tolist() == [[np.float32(0.9)] * 2 + [0.5] * 2]
    assert merge_top_k([left, right], 99)[1].tolist() == [[2, 7, 3, 9, 1]]


def test_a_query_alone_or_in_a_batch_scores_the_same_to_the_last_bit() -> None:
    queries, gallery = unit(300, 96, 1), unit(500, 96, 2)
    scores, found = Searcher(gallery, model="m").top_k(queries, 7)
    for rows in ([0], [299], range(5), range(100, 133)):
        alone = Searcher(gallery, model="m", memory_bytes=37 * 96 * 4).top_k(queries[list(rows)], 7)
        assert np.array_equal(alone[0], scores[list(rows)]) and np.array_equal(alone[1], found[list(rows)])


def test_a_mapped_gallery_is_not_copied(tmp_path: Path) -> None:
    np.save(tmp_path / "g.npy", unit(50, 8, 0))
    mapped = np.load(tmp_path / "g.npy", mmap_mode="r")
    searcher = Searcher(mapped, model="m")
    assert np.shares_memory(searcher._gallery, mapped)
    assert searcher.top_k(np.asarray(mapped[:3]), 1)[1][:, 0].tolist() == [0, 1, 2]


def test_many_ties_are_settled_within_the_budget_of_results(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("repair_ray.engines.searcher.RESULT_BYTES", 1)
    gallery = np.tile(lattice(3, 0), (30, 1))
    queries = lattice(9, 1)
    assert np.array_equal(Searcher(gallery, model="m").top_k(queries, 4)[1], sorted_top(queries, gallery, 4)[1])


def test_a_shard_names_places_of_the_whole_gallery() -> None:
    gallery = unit(20, 8, 0)
    _, found = Searcher(gallery[12:], model="m", first=12).top_k(gallery[12:], 1)
    assert found[:, 0].tolist() == list(range(12, 20))
