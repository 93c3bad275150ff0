"""Ranks and metrics: by hand, and against an independent full sort."""

from __future__ import annotations

import numpy as np
import pytest

from repair_ray.evaluation.retrieval import best_ranks, direction_metrics, ranking, retrieval_metrics


def unit(rows: int, width: int, seed: int) -> np.ndarray:
    made = np.random.default_rng(seed).normal(size=(rows, width))
    return (made / np.linalg.norm(made, axis=1, keepdims=True)).astype(np.float32)


def places(*lists: list[int]) -> list[np.ndarray]:
    return [np.array(found, np.int64) for found in lists]


class TestBestRanks:
    # One query along the axis: scores are the gallery's first coordinates.
    query = np.array([[1.0, 0.0]], np.float32)
    gallery = np.array([[0.9, 0], [0.7, 0], [0.7, 0], [0.5, 0], [0.1, 0]], np.float32)

    @pytest.mark.parametrize(
        ("positives", "rank"),
        [
            ([0], 1),
            ([3], 4),
            ([4], 5),
            ([1], 3),  # a tie with item 2: below it
            ([2], 3),
            ([1, 2], 2),  # both are right: only item 0 is above
            ([3, 4], 4),  # the best of them counts
            ([0, 1, 2, 3, 4], 1),
            ([], 0),
        ],
    )
    def test_by_hand(self, positives: list[int], rank: int) -> None:
        assert best_ranks(self.query, self.gallery, places(positives)).tolist() == [rank]

    @pytest.mark.parametrize("chunk", [1, 7, 1024])
    def test_equals_full_sort(self, chunk: int) -> None:
        rng = np.random.default_rng(0)
        queries, gallery = unit(60, 4, 1), unit(45, 4, 2)
        gallery[20:30] = gallery[:10]  # exact ties
        positives = [rng.choice(45, rng.integers(0, 6), replace=False) for _ in range(60)]
        expected = []
        for query, own in zip(queries, positives, strict=True):
            scores = {item: np.float64(np.float32(query @ gallery[item])) for item in range(45)}
            # Wrong items first among near-equal scores: rounding must not decide a tie.
            order = sorted(scores, key=lambda item: (-round(float(scores[item]), 5), item in own))
            right = [place for place, item in enumerate(order) if item in own]
            expected.append(sum(order[place] not in own for place in range(right[0])) + 1 if right else 0)
        assert best_ranks(queries, gallery, positives, chunk).tolist() == expected

    def test_constant_embeddings_rank_last(self) -> None:
        ranks = best_ranks(np.tile(unit(1, 64, 0), (50, 1)), np.tile(unit(1, 64, 0), (103, 1)), places(*[[0]] * 50))
        assert set(ranks.tolist()) == {103}

    def test_features_that_are_not_finite_rank_last(self) -> None:
        gallery = unit(5, 3, 0)
        broken = gallery.copy()
        broken[1] = np.nan
        assert best_ranks(gallery[[1]], broken, places([1])).tolist() == [5]
        assert best_ranks(np.full((1, 3), np.nan, np.float32), gallery, places([1, 2])).tolist() == [4]

    def test_half_precision_is_scored_in_float32(self) -> None:
        queries, gallery = unit(20, 8, 1).astype(np.float16), unit(30, 8, 2).astype(np.float16)
        own = places(*[[i] for i in range(20)])
        expected = best_ranks(queries.astype(np.float32), gallery.astype(np.float32), own)
        assert np.array_equal(best_ranks(queries, gallery, own), expected)


class TestRanking:
    # Scores of the gallery: 0.9, 0.7, 0.7, 0.5, 0.1.
    query, gallery = TestBestRanks.query, TestBestRanks.gallery

    @pytest.mark.parametrize(
        ("positives", "top", "best"),
        [
            ([0], [0, 1, 2], 0),
            ([1], [0, 2, 1], 1),  # a tie: the wrong item first
            ([1, 2], [0, 1, 2], 1),
            ([4], [0, 1, 2], 4),
            ([], [0, 1, 2], -1),
        ],
    )
    def test_by_hand(self, positives: list[int], top: list[int], best: int) -> None:
        found = ranking(self.query, self.gallery, places(positives), 3)
        assert found.top.tolist() == [top]
        assert found.top_scores.tolist() == [[pytest.approx(float(self.gallery[item, 0])) for item in top]]
        assert found.top_right.tolist() == [[item in positives for item in top]]
        assert found.best.tolist() == [best]
        if best < 0:
            assert np.isnan(found.best_scores[0])
        else:
            assert found.best_scores[0] == self.gallery[best, 0]

    @pytest.mark.parametrize("keep", [1, 4, 45, 100])
    def test_the_first_positive_stands_where_the_rank_says(self, keep: int) -> None:
        rng = np.random.default_rng(0)
        queries, gallery = unit(60, 4, 1), unit(45, 4, 2)
        gallery[20:30] = gallery[:10]  # exact ties
        positives = [rng.choice(45, rng.integers(0, 6), replace=False) for _ in range(60)]
        found = ranking(queries, gallery, positives, keep, memory_bytes=1)
        assert found.top.shape == (60, min(keep, 45))
        for query, own in enumerate(positives):
            scores = np.round(gallery @ queries[query], 5)
            full = sorted(range(45), key=lambda item: (-scores[item], item in own))
            # Which of two equal wrong items comes first, rounding decides.
            shown = [(scores[item], item in own) for item in found.top[query]]
            assert shown == [(scores[item], item in own) for item in full[:keep]]
            assert len(set(found.top[query])) == min(keep, 45)
            first = next((place for place, item in enumerate(full, start=1) if item in own), 0)
            assert found.ranks[query] == first

    def test_scores_that_are_no_number_stand_where_the_rank_says(self) -> None:
        gallery = self.gallery.copy()
        gallery[3] = np.nan
        assert ranking(self.query, gallery, places([0]), 2).top.tolist() == [[3, 0]]
        assert ranking(self.query, gallery, places([0]), 2).ranks.tolist() == [2]
        assert ranking(self.query, gallery, places([3]), 5).top.tolist() == [[0, 1, 2, 4, 3]]


class TestDirectionMetrics:
    def test_by_hand(self) -> None:
        found = direction_metrics(np.array([1, 2, 5, 10, 11, 0, 1, 0]))
        assert (found["n"], found["skipped"]) == (6, 2)
        assert found["r@1"] == pytest.approx(100 * 2 / 6, abs=1e-3)
        assert found["r@5"] == pytest.approx(100 * 4 / 6, abs=1e-3)
        assert found["r@10"] == pytest.approx(100 * 5 / 6, abs=1e-3)
        assert found["mrr"] == pytest.approx(100 * (1 + 1 / 2 + 1 / 5 + 1 / 10 + 1 / 11 + 1) / 6, abs=1e-3)
        low, high = found["r@1_ci"]
        assert 0 <= low < found["r@1"] < high <= 100

    def test_perfect_ranking(self) -> None:
        found = direction_metrics(np.ones(20, np.int64))
        assert [found[key] for key in ("r@1", "r@5", "r@10", "mrr")] == [100.0] * 4
        assert found["r@1_ci"] == [100.0, 100.0]

    def test_no_positive_at_all_is_refused(self) -> None:
        with pytest.raises(ValueError, match="no query has a positive"):
            direction_metrics(np.zeros(3, np.int64))

    def test_same_seed_same_interval(self) -> None:
        ranks = np.random.default_rng(0).integers(1, 4, 100)
        assert direction_metrics(ranks, 200, 1) == direction_metrics(ranks, 200, 1)


class TestRetrievalMetrics:
    def test_uneven_captions_by_hand(self) -> None:
        # Image 0 has captions 0, 1, 2; image 1 has caption 3; image 2 has none; caption 4's image is not there.
        images = np.eye(3, dtype=np.float32)
        captions = np.array(
            [[0.9, 0.1, 0], [0.2, 0.8, 0], [0.3, 0, 0.7], [0.1, 0.6, 0.3], [0, 0, 1]], np.float32
        )  # not unit length, so that scores can be read off
        found = retrieval_metrics(images, captions, places([0, 1, 2], [3], []), places([0], [0], [0], [1], []))
        # i2t: image 0: caption 0 is first. Image 1: caption 1 (0.8) is above caption 3 (0.6): rank 2. Image 2 skipped.
        assert (found["i2t"]["n"], found["i2t"]["skipped"]) == (2, 1)
        assert (found["i2t"]["r@1"], found["i2t"]["r@5"], found["i2t"]["mrr"]) == (50.0, 100.0, 75.0)
        # t2i: ranks 1, 2, 2, 1; caption 4 skipped.
        assert (found["t2i"]["n"], found["t2i"]["skipped"]) == (4, 1)
        assert (found["t2i"]["r@1"], found["t2i"]["r@5"], found["t2i"]["mrr"]) == (50.0, 100.0, 75.0)

    def test_multi_match(self) -> None:
        # Two captions with one text and two images with the same pixels are right for each other, all four ways.
        images = np.array([[1, 0], [1, 0], [0, 1]], np.float32)
        captions = np.array([[1, 0], [1, 0], [0, 1]], np.float32)
        pairs = places([0, 1], [0, 1], [2])
        assert retrieval_metrics(images, captions, pairs, pairs)["i2t"]["r@1"] == 100.0
        # Told that each belongs to one alone, both tie with a wrong item.
        single = places([0], [1], [2])
        assert retrieval_metrics(images, captions, single, single)["i2t"]["r@1"] == pytest.approx(33.333, abs=1e-3)

    @pytest.mark.parametrize("width", [2, 128])
    def test_constant_embeddings_score_near_zero(self, width: int) -> None:
        images, captions = np.tile(unit(1, width, 3), (100, 1)), np.tile(unit(1, width, 3), (500, 1))
        found = retrieval_metrics(
            images,
            captions,
            places(*[list(range(5 * i, 5 * i + 5)) for i in range(100)]),
            places(*np.arange(100).repeat(5)[:, None].tolist()),
        )
        for direction in ("i2t", "t2i"):
            assert found[direction]["r@1"] == found[direction]["r@10"] == 0.0
            assert found[direction]["mrr"] < 1.1
