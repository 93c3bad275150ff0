"""The approximate index: what it finds, what it misses, and that it is the same each time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from repair_ray.engines.inverted import InvertedSearcher, build_inverted, default_lists, recall
from repair_ray.engines.searcher import Searcher


def unit(rows: int, width: int, seed: int) -> np.ndarray:
    made = np.random.default_rng(seed).normal(size=(rows, width))
    return (made / np.linalg.norm(made, axis=1, keepdims=True)).astype(np.float32)


def test_all_lists_find_all(tmp_path: Path) -> None:
    gallery, queries = unit(300, 8, 0), unit(20, 8, 1)
    assert build_inverted(gallery, tmp_path / "i", 7, seed=3) == 7
    scores, found = InvertedSearcher(tmp_path / "i", probes=7).top_k(queries, 5)
    exact_scores, exact = Searcher(gallery, model="m").top_k(queries, 5)
    assert np.array_equal(found, exact)
    np.testing.assert_allclose(scores, exact_scores, atol=1e-6)
    fewer = recall(exact_scores, InvertedSearcher(tmp_path / "i", probes=1).top_k(queries, 5)[0])
    assert 0.1 < fewer < 1.0


def test_the_seed_decides_the_lists(tmp_path: Path) -> None:
    gallery = unit(200, 8, 0)
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        build_inverted(gallery, tmp_path / name, 6, seed)
    a, b, c = ((tmp_path / name).read_bytes() for name in "abc")
    assert a == b != c


def test_fewer_than_asked_for_come_as_minus_one(tmp_path: Path) -> None:
    build_inverted(unit(60, 4, 0), tmp_path / "i", 20, seed=0)
    _, found = InvertedSearcher(tmp_path / "i", probes=1).top_k(unit(5, 4, 1), 50)
    assert found.shape == (5, 50) and (found[:, -1] == -1).all() and (found[:, 0] >= 0).all()


def test_more_lists_than_rows(tmp_path: Path) -> None:
    assert build_inverted(unit(3, 4, 0), tmp_path / "i", 100, seed=0) == 3


@pytest.mark.parametrize(("rows", "lists"), [(1, 1), (39, 1), (1000, 25), (1_000_000, 4000)])
def test_default_lists(rows: int, lists: int) -> None:
    assert default_lists(rows) == lists


def test_recall_by_hand() -> None:
    exact = np.array([[0.9, 0.5], [0.8, 0.8]])
    lowest = np.finfo(np.float32).min
    # The first query's second neighbour ties with the exact one; the second query has one of two.
    assert recall(exact, np.array([[0.9, 0.5], [0.8, lowest]])) == 0.75
    assert recall(exact, exact) == recall(exact, exact - 1e-7) == 1.0
    assert recall(exact, np.array([[0.4, 0.3], [0.7, 0.1]])) == 0.0
