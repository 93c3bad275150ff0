"""k-means and quotas: by hand, and against a plain computation."""

from __future__ import annotations

import numpy as np
import pytest

from repair_ray.evaluation.diversity import cluster, quotas, sample_clusters


def blobs(sizes: list[int]) -> np.ndarray:
    """Tight heaps of unit vectors, each around an axis of its own."""
    draw = np.random.default_rng(0)
    heaps = [np.eye(len(sizes))[n] + draw.normal(scale=0.02, size=(size, len(sizes))) for n, size in enumerate(sizes)]
    found = np.concatenate(heaps)
    return (found / np.linalg.norm(found, axis=1, keepdims=True)).astype(np.float32)


def test_heaps_become_clusters() -> None:
    features = blobs([5, 20, 9])
    own, similarity = cluster(features, 3, seed=0)
    parts = [own[:5], own[5:25], own[25:]]
    assert [len(set(part.tolist())) for part in parts] == [1, 1, 1] and len({part[0] for part in parts}) == 3
    centre = features[:5].mean(axis=0)
    assert similarity[:5] == pytest.approx(features[:5] @ (centre / np.linalg.norm(centre)), abs=1e-5)
    again, _ = cluster(features, 3, seed=0)
    assert np.array_equal(own, again)


def test_as_many_clusters_as_pictures_and_no_more() -> None:
    features = blobs([1, 1, 1])
    assert sorted(cluster(features, 3, seed=0)[0].tolist()) == [0, 1, 2]
    with pytest.raises(ValueError, match="4 clusters of 3 pictures: k is larger than the pool"):
        cluster(features, 4, seed=0)


@pytest.mark.parametrize(
    ("sizes", "total", "expected"),
    [
        ([5, 5, 5], 6, [2, 2, 2]),
        ([1, 10, 3], 9, [1, 5, 3]),  # 3 each; the first lacks 2, which the second gives
        ([1, 10, 3], 8, [1, 4, 3]),
        ([5, 7, 6], 2, [0, 1, 1]),  # what does not divide goes to the largest
        ([2, 2], 100, [2, 2]),
        ([0, 4], 3, [0, 3]),
    ],
)
def test_quotas(sizes: list[int], total: int, expected: list[int]) -> None:
    assert quotas(np.array(sizes), total).tolist() == expected


def test_nearest_and_random() -> None:
    own = np.array([0, 0, 0, 1, 1, 1])
    similarity = np.array([0.9, 0.95, 0.9, 0.1, 0.2, 0.3], np.float32)
    assert np.flatnonzero(sample_clusters(own, similarity, 4, "nearest", 0)).tolist() == [0, 1, 4, 5]
    drawn = {tuple(np.flatnonzero(sample_clusters(own, similarity, 2, "random", seed))) for seed in range(60)}
    assert drawn == {(a, b) for a in (0, 1, 2) for b in (3, 4, 5)}
    first, second = (sample_clusters(own, similarity, 2, "random", 7) for _ in range(2))
    assert np.array_equal(first, second)
