"""Mixtures of features against values worked out by hand and an independent float64 computation with loops."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import nnls
from torch import Tensor

from repair_ray.config import ConfigError, parse_config
from repair_ray.sections.objective import PositiveMixingConfig
from repair_ray.training.objectives.mixing import EPS, Mix, mix_negatives, mix_positives
from tests.training.mixed import MIXES, at, numpy_positives, others, random_allowed, unit


class TestMixPositives:
    # The query is the first axis; the second row's own query is its positive, so that row 0's negative is row 1.
    def one(self, d1: float, d2: float, margin: float = 0.1, mix: float | None = None) -> tuple[Tensor, Tensor]:
        """The positive of the first of two queries, and what became of it."""
        positives = at(d1, d2)
        queries = torch.stack([torch.tensor([1.0, 0.0]), positives[1]])
        return positives, mix_positives(queries, positives, others(2), margin, mix)[0]

    def test_a_nearer_negative_by_hand(self) -> None:
        # d1 = 0.6, d2 = 0.8: w = 3/7. Positive (0.6, 0.8), negative (0.8, -0.6): the mixture is
        # (3/7 * 0.6 + 4/7 * 0.8, 3/7 * 0.8 - 4/7 * 0.6) = (5/7, 0), at unit length (1, 0).
        _, found = self.one(0.6, 0.8)
        assert found.tolist() == pytest.approx([1.0, 0.0], abs=1e-6)

    def test_a_gap_within_the_margin_by_hand(self) -> None:
        # d1 = 0.8, d2 = 0.6: the gap is a quarter. Margin 0.3: w = 4/7, (4/7 * 0.8 + 3/7 * 0.6, 4/7 * 0.6 - 3/7 * 0.8).
        _, found = self.one(0.8, 0.6, margin=0.3)
        assert found.tolist() == pytest.approx([1.0, 0.0], abs=1e-6)

    def test_a_gap_beyond_the_margin_changes_nothing(self) -> None:
        positives, found = self.one(0.8, 0.6, margin=0.2)
        assert torch.equal(found, positives[0])

    def test_fixed_weight_by_hand(self) -> None:
        # 0.75 * (0.6, 0.8) + 0.25 * (0.8, -0.6) = (0.65, 0.45), of length sqrt(0.625).
        _, found = self.one(0.6, 0.8, mix=0.75)
        assert found.tolist() == pytest.approx([0.65 / math.sqrt(0.625), 0.45 / math.sqrt(0.625)], abs=1e-6)

    def test_a_positive_on_the_far_side_keeps_its_least_weight(self) -> None:
        # d1 = -0.6 is taken as eps, so that all but nothing of the mixture is the negative; the gap is by |d1|.
        positives, found = self.one(-0.6, 0.8)
        assert found.tolist() == pytest.approx(positives[1].tolist(), abs=1e-5)
        # d1 = -0.5, d2 = -0.8: the gap 0.3 / 0.5 is beyond the margin although the ratio (d1 - d2) / d1 is negative.
        positives, found = self.one(-0.5, -0.8)
        assert torch.equal(found, positives[0])
        # d1 = -0.8, d2 = -0.6: both are taken as eps, in equal parts: (-0.7, -0.1), of length sqrt(0.5).
        _, found = self.one(-0.8, -0.6)
        assert found.tolist() == pytest.approx([-0.7 / math.sqrt(0.5), -0.1 / math.sqrt(0.5)], abs=1e-6)

    def test_a_right_angle_divides_by_nothing(self) -> None:
        positives, found = self.one(0.0, -0.5)
        assert torch.equal(found, positives[0])  # any gap is beyond any margin
        _, found = self.one(0.0, 0.6)
        assert found.norm().item() == pytest.approx(1.0)

    def test_opposite_features_in_equal_parts_leave_the_positive(self) -> None:
        positives = torch.tensor([[0.0, 1.0], [0.0, -1.0]]).requires_grad_()
        queries = torch.tensor([[1.0, 0.0], [0.0, -1.0]])
        found = mix_positives(queries, positives, others(2))
        assert torch.equal(found, positives)
        found.sum().backward()
        assert positives.grad is not None and torch.isfinite(positives.grad).all()

    @pytest.mark.parametrize("mix", [None, 0.0, 0.3, 1.0])
    @pytest.mark.parametrize("seed", range(4))
    def test_equals_numpy(self, seed: int, mix: float | None) -> None:
        queries, positives = unit(9, 3, seed=seed), unit(9, 3, seed=seed + 100)
        allowed = random_allowed(9, seed)
        found = mix_positives(queries, positives, allowed, 0.2, mix)
        expected = numpy_positives(queries.double().numpy(), positives.double().numpy(), allowed.numpy(), 0.2, mix)
        np.testing.assert_allclose(found.numpy(), expected, atol=1e-5)

    def test_a_row_without_a_negative_is_unchanged(self) -> None:
        queries, positives = unit(4, 3), unit(4, 3, seed=1)
        allowed = others(4)
        allowed[2] = False
        found = mix_positives(queries, positives, allowed, margin=100.0)
        assert torch.equal(found[2], positives[2])
        assert not any(torch.equal(found[i], positives[i]) for i in (0, 1, 3))

    def test_the_diagonal_is_no_negative(self) -> None:
        queries, positives = unit(5, 4), unit(5, 4, seed=1)
        every = torch.ones(5, 5, dtype=torch.bool)
        assert torch.equal(mix_positives(queries, positives, every), mix_positives(queries, positives, others(5)))

    @pytest.mark.parametrize("size", [0, 1])
    def test_a_batch_of_none_or_one_is_unchanged(self, size: int) -> None:
        positives = unit(size, 4)
        assert torch.equal(mix_positives(unit(size, 4, seed=1), positives, others(size)), positives)

    def test_equal_features_stay_what_they_are(self) -> None:
        same = unit(1, 4).expand(6, 4)
        assert torch.allclose(mix_positives(same, same, others(6)), same, atol=1e-6)

    def test_weights_have_no_gradient_and_features_have(self) -> None:
        queries, positives = unit(6, 3).requires_grad_(), unit(6, 3, seed=1).requires_grad_()
        found = mix_positives(queries, positives, others(6), margin=100.0)
        found.sum().backward()
        assert queries.grad is None  # the queries decide, and are not part of the mixture
        assert positives.grad is not None and positives.grad.abs().min() > 0

    def test_gradient_with_frozen_weights_against_finite_differences(self) -> None:
        queries, positives = unit(5, 3, seed=2).double(), unit(5, 3, seed=3)
        start = positives.double().numpy()
        chosen = [(queries[i].numpy() @ start.T).tolist() for i in range(5)]
        hardest = [max((c, j) for j, c in enumerate(row) if j != i)[1] for i, row in enumerate(chosen)]
        weights = [max(r[i], EPS) / (max(r[i], EPS) + max(r[hardest[i]], EPS)) for i, r in enumerate(chosen)]

        def loss(values: np.ndarray) -> float:
            total = 0.0
            for i, w in enumerate(weights):
                mixture = w * values[i] + (1 - w) * values[hardest[i]]
                total += float(mixture @ np.array([1.0, -2.0, 0.5])) / math.sqrt(float(mixture @ mixture))
            return total

        positives.requires_grad_()
        found = mix_positives(queries.float(), positives, others(5), margin=100.0)
        (found @ torch.tensor([1.0, -2.0, 0.5])).sum().backward()
        assert positives.grad is not None
        for place in np.ndindex(5, 3):
            step = np.zeros((5, 3))
            step[place] = 1e-5
            expected = (loss(start + step) - loss(start - step)) / 2e-5
            assert positives.grad[place].item() == pytest.approx(expected, abs=2e-4)

    @pytest.mark.parametrize("mix", [-0.1, 1.1, math.nan])
    def test_a_mix_that_is_no_weight(self, mix: float) -> None:
        with pytest.raises(ValueError, match="weight of the positive from 0 to 1"):
            mix_positives(unit(2, 2), unit(2, 2), others(2), mix=mix)

    def test_bfloat16_under_autocast_computes_in_float32(self) -> None:
        queries, positives = unit(8, 16).bfloat16(), unit(8, 16, seed=1).bfloat16()
        with torch.autocast("cpu", torch.bfloat16):
            found = mix_positives(queries, positives, others(8), margin=100.0)
        assert found.dtype == torch.float32
        assert torch.equal(found, mix_positives(queries.float(), positives.float(), others(8), margin=100.0))

    @settings(max_examples=20, deadline=None)
    @given(size=st.integers(1, 7), width=st.integers(1, 4), seed=st.integers(0, 10**6), mix=st.floats(0, 1))
    def test_always_convex_and_of_unit_length(self, size: int, width: int, seed: int, mix: float) -> None:
        queries, positives, allowed = unit(size, width, seed=seed), unit(size, width, seed=seed + 1), others(size)
        for chosen in (None, mix):
            found = mix_positives(queries, positives, allowed, 0.5, chosen).double().numpy()
            np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-4)
            for i, row in enumerate(found):
                # Parts of the positive and of one other, none of them negative, give it.
                ends = (np.stack([positives[i], positives[j]], axis=1).astype(float) for j in range(size))
                assert min(nnls(pair, row)[1] for pair in ends) < 1e-4


class TestMixNegatives:
    QUERY = torch.tensor([[1.0, 0.0]])

    def test_pairs_and_weights_by_hand(self) -> None:
        # Cosines 0.9, 0.6, 0.3, -0.2: the two hardest are keys 0 and 1, whatever the order in which they come.
        keys = at(0.3, 0.9, -0.2, 0.6)
        found, there = mix_negatives(
            self.QUERY, keys, torch.ones(1, 4, dtype=torch.bool), 2, 50, "similarity", torch.Generator().manual_seed(0)
        )
        # 0.9 and 0.6 weigh 3/5 and 2/5, whichever of them was drawn first.
        expected = 0.6 * keys[1] + 0.4 * keys[3]
        assert there.tolist() == [True]
        assert found.shape == (1, 50, 2)
        assert torch.allclose(found, (expected / expected.norm()).expand(1, 50, 2), atol=1e-6)

    def test_every_pair_of_the_hardest_comes_and_no_other(self) -> None:
        keys = torch.eye(6)
        query = torch.nn.functional.normalize(torch.tensor([[0.6, 0.5, 0.4, 0.3, 0.2, 0.1]]), dim=-1)
        every = torch.ones(1, 6, dtype=torch.bool)
        found, _ = mix_negatives(query, keys, every, 3, 900, "uniform", torch.Generator().manual_seed(1))
        seen = [tuple(row.nonzero()[:, 0].tolist()) for row in found[0]]
        assert set(seen) == {(0, 1), (0, 2), (1, 2)}
        assert min(seen.count(pair) for pair in set(seen)) > 900 / 3 * 0.8
        # a ~ U(0, 1): of a pair of unit axes the share of the first is a.
        shares = torch.stack([row[row > 0][0] / row.sum() for row in found[0]])
        assert shares.mean().item() == pytest.approx(0.5, abs=0.05)
        assert shares.quantile(0.1).item() == pytest.approx(0.1, abs=0.05)

    @pytest.mark.parametrize("mix", ["uniform", "similarity"])
    @pytest.mark.parametrize("seed", range(3))
    def test_equals_numpy(self, seed: int, mix: Mix) -> None:
        queries, keys, k, pairs = unit(7, 3, seed=seed), unit(9, 3, seed=seed + 50), 4, 5
        allowed = torch.rand(7, 9, generator=torch.Generator().manual_seed(seed)) < 0.5
        allowed[0], allowed[1] = False, torch.arange(9) == 3
        found, there = mix_negatives(queries, keys, allowed, k, pairs, mix, torch.Generator().manual_seed(seed))
        draws = torch.rand(3, 7, pairs, generator=torch.Generator().manual_seed(seed)).double().numpy()
        q, g = queries.double().numpy(), keys.double().numpy()
        assert there.tolist() == allowed.any(1).tolist()
        for i in range(7):
            ranked = sorted((-float(q[i] @ g[j]), j) for j in range(9) if allowed[i, j])[:k]
            for m in range(pairs if ranked else 0):
                one = int(draws[0, i, m] * len(ranked))
                left = [n for n in range(len(ranked)) if n != one]
                other = left[int(draws[1, i, m] * len(left))] if left else one
                (d1, x), (d2, y) = ranked[one], ranked[other]
                a = draws[2, i, m] if mix == "uniform" else max(-d1, EPS) / (max(-d1, EPS) + max(-d2, EPS))
                mixture = a * g[x] + (1 - a) * g[y]
                np.testing.assert_allclose(found[i, m].numpy(), mixture / np.linalg.norm(mixture), atol=1e-5)

    def test_a_single_negative_stands_for_itself(self) -> None:
        keys = at(0.9, 0.2, 0.1)
        found, there = mix_negatives(self.QUERY, keys, torch.tensor([[False, True, False]]), 2, 4)
        assert there.tolist() == [True]
        assert torch.allclose(found, keys[1].expand(1, 4, 2), atol=1e-6)

    def test_no_negative_gives_no_mixture(self) -> None:
        found, there = mix_negatives(self.QUERY, at(0.9, 0.2), torch.zeros(1, 2, dtype=torch.bool), 1, 3)
        assert there.tolist() == [False]
        assert torch.isfinite(found).all()

    @pytest.mark.parametrize(("keys", "k"), [(4, 4), (4, 9), (1, 1), (0, 1)])
    def test_k_that_is_not_below_the_batch(self, keys: int, k: int) -> None:
        with pytest.raises(ValueError, match=rf"hard_negative_mixing.k={k} is not below the batch of {keys},") as error:
            mix_negatives(unit(keys, 3), unit(keys, 3), others(keys), k, 2)
        assert "lower hard_negative_mixing.k, or raise training.batch_size" in str(error.value)

    def test_ties_take_the_first(self) -> None:
        same = unit(1, 3).expand(8, 3).clone()
        same.requires_grad_()  # equal keys are told apart by their gradients
        found, _ = mix_negatives(same.detach(), same, others(8), 2, 6)
        assert torch.allclose(found, same.detach()[:, None].expand(8, 6, 3), atol=1e-6)
        found[7].sum().backward()
        assert same.grad is not None
        assert [bool(row.any()) for row in same.grad] == [True, True] + [False] * 6

    def test_opposite_negatives_give_no_nan(self) -> None:
        keys = torch.tensor([[0.0, 1.0], [0.0, -1.0], [-1.0, 0.0]]).requires_grad_()
        every = torch.ones(1, 3, dtype=torch.bool)
        found, _ = mix_negatives(self.QUERY, keys, every, 2, 5, "similarity")
        assert torch.allclose(found.norm(dim=-1), torch.ones(1, 5))
        found.sum().backward()
        assert keys.grad is not None and torch.isfinite(keys.grad).all()

    def test_draws_come_from_the_generator_alone(self) -> None:
        def draw(seed: int) -> Tensor:
            return mix_negatives(
                unit(6, 4), unit(6, 4), others(6), 4, 3, generator=torch.Generator().manual_seed(seed)
            )[0]

        torch.manual_seed(1)
        first = draw(5)
        torch.manual_seed(2)
        assert torch.equal(first, draw(5))
        assert not torch.equal(first, draw(6))

    def test_bfloat16_under_autocast_computes_in_float32(self) -> None:
        queries, keys = unit(8, 16).bfloat16(), unit(8, 16, seed=1).bfloat16()

        def mixed(queries: Tensor, keys: Tensor) -> Tensor:
            return mix_negatives(queries, keys, others(8), 3, 4, generator=torch.Generator().manual_seed(0))[0]

        with torch.autocast("cpu", torch.bfloat16):
            found = mixed(queries, keys)
        assert found.dtype == torch.float32
        assert torch.equal(found, mixed(queries.float(), keys.float()))

    @settings(max_examples=20, deadline=None)
    @given(size=st.integers(2, 7), width=st.integers(1, 4), seed=st.integers(0, 10**6), mix=st.sampled_from(MIXES))
    def test_always_convex_and_of_unit_length(self, size: int, width: int, seed: int, mix: Mix) -> None:
        queries, keys, allowed = unit(size, width, seed=seed), unit(size, width, seed=seed + 1), random_allowed(size, 0)
        k = 1 + seed % (size - 1)
        found, there = mix_negatives(queries, keys, allowed, k, 3, mix, torch.Generator().manual_seed(seed))
        np.testing.assert_allclose(found.norm(dim=-1).numpy(), 1, atol=1e-4)
        for i in there.nonzero()[:, 0].tolist():
            inside = keys[allowed[i]].double().numpy()
            pairs = [np.stack(pair, axis=1) for pair in itertools.combinations_with_replacement(inside, 2)]
            for row in found[i].double().numpy():
                assert min(nnls(pair, row)[1] for pair in pairs) < 1e-4


@pytest.mark.parametrize("word", ["printed", "eq2", "paper"])
def test_the_printed_equation_is_refused_with_the_reason(word: str) -> None:
    tree = {"data": {"path": "x"}, "objective": {"positive_mixing": {"mix": word}}}
    with pytest.raises(ConfigError) as error:
        parse_config(tree)
    for part in (f"positive_mixing.mix='{word}'", "undefined", "d1 < d2", "negative", "Leave mix unset"):
        assert part in str(error.value)


@pytest.mark.parametrize("weight", [0, 0.3, 1, None])
def test_a_weight_is_not_refused(weight: float | None) -> None:
    assert PositiveMixingConfig.model_validate({"mix": weight}).mix == weight
