"""Many right answers a query: by hand, by brute force, by ECCV Caption's definition, and by trec_eval."""

from __future__ import annotations

import numpy as np
import pytest

from repair_ray.evaluation.multimatch import (
    average_precision,
    average_precision_at_r,
    multimatch_metrics,
    positive_ranks,
    r_precision,
    ranks_in_ranking,
)
from repair_ray.evaluation.retrieval import best_ranks
from tests.evaluation.test_retrieval_metrics import places, unit


@pytest.fixture(scope="module")
def drawn() -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
    """Queries, a gallery with exact ties, and 0 to 6 positives a query."""
    rng = np.random.default_rng(0)
    gallery = unit(45, 4, 2)
    gallery[20:30] = gallery[:10]
    return unit(60, 4, 1), gallery, [rng.choice(45, rng.integers(0, 7), replace=False) for _ in range(60)]


def ranking(query: np.ndarray, gallery: np.ndarray, own: np.ndarray) -> list[int]:
    """The gallery, best first; among near-equal scores wrong items first, so that rounding decides nothing."""
    scores = {item: float(query @ gallery[item]) for item in range(len(gallery))}
    return sorted(scores, key=lambda item: (-round(scores[item], 5), item in own))


class TestByHand:
    # Hits at 1, 3 and 6 of four positives.
    ranks = np.array([1, 3, 6])

    def test_average_precision(self) -> None:
        assert average_precision(self.ranks, 4, 5) == pytest.approx((1 + 2 / 3) / 4)
        assert average_precision(self.ranks, 4, 2) == pytest.approx(1 / 2)
        assert average_precision(self.ranks, 4, 2, "positives") == pytest.approx(1 / 4)
        assert average_precision(self.ranks, 4, 6) == pytest.approx((1 + 2 / 3 + 3 / 6) / 4)

    def test_at_r(self) -> None:
        assert average_precision_at_r(self.ranks, 4) == pytest.approx((1 + 2 / 3) / 4)
        assert r_precision(self.ranks, 4) == 2 / 4

    def test_a_perfect_ranking_is_1_at_any_depth_but_for_the_other_denominator(self) -> None:
        found = multimatch_metrics([np.array([1, 2, 3, 4])], k=2)
        assert [found[name] for name in ("map@2", "map@r", "r_precision", "r@1", "mrr")] == [100.0] * 5
        assert found["recall@1"] == 25.0 and found["recall@5"] == 100.0
        assert multimatch_metrics([np.array([1, 2, 3, 4])], k=2, denominator="positives")["map@2"] == 50.0

    def test_queries_without_positives_are_skipped_and_counted(self) -> None:
        found = multimatch_metrics([np.array([2]), np.zeros(0, np.int64), np.array([1, 4])], k=5)
        assert (found["n"], found["skipped"]) == (2, 1)
        assert found["positives"] == {"min": 1, "mean": 1.5, "max": 2}
        assert found["map@5"] == pytest.approx(100 * (1 / 2 + (1 + 2 / 4) / 2) / 2, abs=1e-3)
        with pytest.raises(ValueError, match="no query has a positive"):
            multimatch_metrics([np.zeros(0, np.int64)])

    def test_given_rankings(self) -> None:
        ranks = ranks_in_ranking(["a", "x", "b", "y", "z"], ["c", "b", "a"])
        assert ranks.tolist() == [1, 3]
        # `c` is not in the cut ranking: it is one more positive that was not found.
        found = multimatch_metrics([ranks, np.zeros(0, np.int64)], [3, 2], k=5)
        assert found["map@5"] == pytest.approx(100 * (1 + 2 / 3) / 3 / 2, abs=1e-3)
        assert (found["mrr"], found["r@1"], found["skipped"]) == (50.0, 50.0, 0)
        with pytest.raises(ValueError, match="holds 'a' more than once"):
            ranks_in_ranking(["a", "b", "a"], ["a"])

    def test_an_unknown_denominator_is_refused(self) -> None:
        with pytest.raises(ValueError, match="none of min, positives"):
            multimatch_metrics([np.array([1])], denominator="max")  # type: ignore[arg-type]


class TestFromFeatures:
    def test_ties_by_hand(self) -> None:
        # Scores 0.9, 0.7, 0.7, 0.5, 0.1.
        gallery = np.array([[0.9, 0], [0.7, 0], [0.7, 0], [0.5, 0], [0.1, 0]], np.float32)
        query = np.array([[1, 0]], np.float32)
        for own, ranks in (([1, 3], [3, 4]), ([1, 2], [2, 3]), ([0, 4], [1, 5]), ([2, 1, 0], [1, 2, 3]), ([], [])):
            assert positive_ranks(query, gallery, places(own))[0].tolist() == ranks

    def test_ignored_items_are_not_there(self) -> None:
        gallery = np.array([[0.9, 0], [0.7, 0], [0.7, 0], [0.5, 0], [0.1, 0]], np.float32)
        query = np.array([[1, 0]], np.float32)
        # Above 0.5 stand three; two of them are ignored. What stands below changes nothing.
        for ignored, rank in (([], 4), ([0], 3), ([0, 1], 2), ([4], 4), ([0, 1, 2, 4], 1)):
            assert positive_ranks(query, gallery, places([3]), ignored=places(ignored))[0].tolist() == [rank]

    @pytest.mark.parametrize("memory", [1, 1024, 2**20])
    def test_equals_a_full_sort(self, drawn: tuple[np.ndarray, np.ndarray, list[np.ndarray]], memory: int) -> None:
        queries, gallery, positives = drawn
        for query, own, ranks in zip(
            queries, positives, positive_ranks(queries, gallery, positives, memory), strict=True
        ):
            order = ranking(query, gallery, own)
            assert ranks.tolist() == [place for place, item in enumerate(order, 1) if item in own]

    def test_the_first_is_the_best_rank(self, drawn: tuple[np.ndarray, np.ndarray, list[np.ndarray]]) -> None:
        queries, gallery, positives = drawn
        broken = gallery.copy()
        broken[[3, 25]] = np.nan
        for right in (gallery, broken):
            first = [ranks[0] if len(ranks) else 0 for ranks in positive_ranks(queries, right, positives)]
            assert first == best_ranks(queries, right, positives).tolist()

    def test_constant_embeddings_find_nothing(self) -> None:
        ranks = positive_ranks(
            np.tile(unit(1, 64, 0), (50, 1)), np.tile(unit(1, 64, 0), (300, 1)), places(*[[0, 7]] * 50)
        )
        assert ranks[0].tolist() == [299, 300]
        found = multimatch_metrics(ranks)
        assert [found[name] for name in ("r@1", "r@10", "map@20", "map@r", "r_precision")] == [0.0] * 5


class TestAgainstOthers:
    def test_eccv_captions_own_definition(self, drawn: tuple[np.ndarray, np.ndarray, list[np.ndarray]]) -> None:
        """Precision at r is one minus the share of the first r that are not right, kept where the r-th is right."""
        queries, gallery, positives = drawn
        maps, precisions, firsts = [], [], []
        for query, own in zip(queries, positives, strict=True):
            if not len(own):
                continue
            order, right = ranking(query, gallery, own), set(own.tolist())
            at = [1 - len(set(order[:r]) - right) / r for r in range(1, len(right) + 1)]
            maps.append(np.mean([p if order[r] in right else 0 for r, p in enumerate(at)]))
            precisions.append(at[-1])
            firsts.append(order[0] in right)
        found = multimatch_metrics(positive_ranks(queries, gallery, positives))
        assert found["map@r"] == pytest.approx(100 * np.mean(maps), abs=1e-3)
        assert found["r_precision"] == pytest.approx(100 * np.mean(precisions), abs=1e-3)
        assert found["r@1"] == pytest.approx(100 * np.mean(firsts), abs=1e-3)
        assert 0 < found["map@r"] < found["r_precision"] < 100

    @pytest.mark.parametrize("denominator", ["min", "positives"])
    def test_brute_force(self, drawn: tuple[np.ndarray, np.ndarray, list[np.ndarray]], denominator: str) -> None:
        queries, gallery, positives = drawn
        values, shares = [], []
        for query, own in zip(queries, positives, strict=True):
            if len(own):
                hits = [item in own for item in ranking(query, gallery, own)[:4]]
                precision = sum(sum(hits[: r + 1]) / (r + 1) for r, hit in enumerate(hits) if hit)
                values.append(precision / (min(4, len(own)) if denominator == "min" else len(own)))
                shares.append(sum(hits) / len(own))
        found = multimatch_metrics(
            positive_ranks(queries, gallery, positives),
            k=4,
            denominator=denominator,  # type: ignore[arg-type]
        )
        assert found["map@4"] == pytest.approx(100 * np.mean(values), abs=1e-3)
        assert found["recall@4"] == pytest.approx(100 * np.mean(shares), abs=1e-3)

    def test_trec_eval(self) -> None:
        trec = pytest.importorskip("pytrec_eval", reason="pytrec_eval (pip install pytrec-eval-terrier) is not here")
        rng = np.random.default_rng(3)
        queries, gallery = unit(40, 8, 4), unit(60, 8, 5)  # no ties
        positives = [rng.choice(60, rng.integers(1, 12), replace=False) for _ in range(40)]
        relevant = {str(q): {str(item): 1 for item in own} for q, own in enumerate(positives)}
        scores = {str(q): {str(i): float(queries[q] @ gallery[i]) for i in range(60)} for q in range(40)}
        measures = {"map_cut.20", "Rprec", "success.1,5,10", "recall.5,10", "recip_rank"}
        made = trec.RelevanceEvaluator(relevant, measures).evaluate(scores)
        found = multimatch_metrics(positive_ranks(queries, gallery, positives), denominator="positives")
        for ours, theirs in {
            "map@20": "map_cut_20",
            "r_precision": "Rprec",
            "r@1": "success_1",
            "r@5": "success_5",
            "r@10": "success_10",
            "recall@5": "recall_5",
            "recall@10": "recall_10",
            "mrr": "recip_rank",
        }.items():
            assert found[ours] == pytest.approx(100 * np.mean([one[theirs] for one in made.values()]), abs=2e-3), ours
