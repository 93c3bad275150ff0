"""The terms of hard-negative mixing against values worked out by hand and an independent float64 computation."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from repair_ray.training.objectives import HardNegativeMixing, InfoNCE, PositiveMixing, SimCSE, info_nce
from repair_ray.training.objectives.mixing import Mix, contrast, draw_seed, mix_negatives
from tests.training.mixed import MIXES, at, numpy_contrast, numpy_positives, others, unit

ONE = torch.tensor(1.0)
Term = Callable[..., Tensor]


def call(term: Term, queries: Tensor, positives: Tensor, scale: Tensor, groups: np.ndarray, **more: int) -> Tensor:
    """A term on items whose groups say which are known positives of each other."""
    items = np.arange(len(queries))
    return term(
        queries,
        positives,
        scale,
        known=lambda a, b: groups[a][:, None] == groups[b][None],
        query_items=items,
        positive_items=items,
        **more,
    )


class TestTerms:
    GROUPS = np.array([0, 1, 2, 3, 3, 1, 4])

    def features(self, seed: int = 0) -> tuple[Tensor, Tensor]:
        return unit(7, 4, seed=seed), unit(7, 4, seed=seed + 10)

    def allowed(self) -> np.ndarray:
        return self.GROUPS[:, None] != self.GROUPS[None]

    def test_simcse_by_hand(self) -> None:
        # Logits [[ln 3, 0], [ln 2, ln 2]]: rows 3/4 and 2/4; columns 3/5 and 2/3.
        queries, positives = torch.eye(2), torch.tensor([[3.0, 2], [1, 2]]).log()
        rows, columns = -math.log(3 / 4 * 2 / 4) / 2, -math.log(3 / 5 * 2 / 3) / 2
        groups = np.arange(2)
        assert call(SimCSE(), queries, positives, ONE, groups).item() == pytest.approx(rows, abs=1e-6)
        both = call(SimCSE(both_ways=True), queries, positives, ONE, groups)
        assert both.item() == pytest.approx((rows + columns) / 2, abs=1e-6)

    def test_simcse_both_ways_is_infonce(self) -> None:
        queries, positives = self.features()
        known = torch.from_numpy(~self.allowed())
        expected = info_nce(queries, positives, torch.tensor(20.0), known)
        found = call(SimCSE(both_ways=True), queries, positives, torch.tensor(20.0), self.GROUPS)
        assert found.item() == pytest.approx(expected.item(), rel=1e-6)

    def test_positive_mixing_by_hand(self) -> None:
        # One direction, two queries on the first axis; positives at cosines 0.6 and 0.8, in different half planes.
        # Query 0: d1 = 0.6 < d2 = 0.8, mixed to (1, 0): e / (e + e^0.8). Query 1: d1 = 0.8, d2 = 0.6, a gap of a
        # quarter: unmixed at margin 0.1, e^0.8 / (e^0.8 + e^0.6).
        queries, positives = torch.tensor([[1.0, 0.0]]).expand(2, 2), at(0.6, 0.8)
        expected = (math.log(1 + math.exp(0.8 - 1)) + math.log(1 + math.exp(0.6 - 0.8))) / 2
        found = call(PositiveMixing(both_ways=False), queries, positives, ONE, np.arange(2))
        assert found.item() == pytest.approx(expected, abs=1e-6)

    @pytest.mark.parametrize("both_ways", [False, True])
    @pytest.mark.parametrize("mix", [None, 0.4])
    def test_positive_mixing_equals_numpy(self, mix: float | None, both_ways: bool) -> None:
        images, texts = self.features(3)
        losses = []
        for q, g in ((images, texts), (texts, images))[: 1 + both_ways]:
            q, g = q.double().numpy(), g.double().numpy()
            mixed = numpy_positives(q, g, self.allowed(), 0.3, mix)
            rows = [
                (float(q[i] @ mixed[i]), [float(q[i] @ g[j]) for j in range(7) if self.allowed()[i, j]])
                for i in range(7)
            ]
            losses.append(numpy_contrast(5.0, rows))
        term = PositiveMixing(0.3, mix, both_ways)
        found = call(term, images, texts, torch.tensor(5.0), self.GROUPS)
        assert found.item() == pytest.approx(sum(losses) / len(losses), rel=1e-5)

    def test_positive_mixing_that_mixes_nothing_is_infonce(self) -> None:
        queries, positives = self.features()
        groups = np.arange(7)
        whole = call(PositiveMixing(mix=1.0), queries, positives, torch.tensor(9.0), groups)
        items = {"known": lambda a, b: groups[a][:, None] == groups[b], "image_items": groups, "text_items": groups}
        assert whole.item() == pytest.approx(InfoNCE()(queries, positives, torch.tensor(9.0), **items).item(), rel=1e-5)

    @pytest.mark.parametrize("both_ways", [False, True])
    @pytest.mark.parametrize("mix", MIXES)
    def test_hard_negative_mixing_equals_numpy(self, mix: Mix, both_ways: bool) -> None:
        images, texts = self.features(4)
        generator = torch.Generator().manual_seed(draw_seed(8, 3))
        allowed = torch.from_numpy(self.allowed())
        losses = []
        for q, g in ((images, texts), (texts, images))[: 1 + both_ways]:
            made, _ = mix_negatives(q, g, allowed, 3, 4, mix, generator)
            q, g, u = q.double().numpy(), g.double().numpy(), made.double().numpy()
            rows = [
                (
                    float(q[i] @ g[i]),
                    [float(q[i] @ g[j]) for j in range(7) if allowed[i, j]] + [float(q[i] @ n) for n in u[i]],
                )
                for i in range(7)
            ]
            losses.append(numpy_contrast(5.0, rows))
        term = HardNegativeMixing(3, 4, mix, both_ways, seed=8)
        found = call(term, images, texts, torch.tensor(5.0), self.GROUPS, step=3)
        assert found.item() == pytest.approx(sum(losses) / len(losses), rel=1e-5)

    def test_draws_are_those_of_the_seed_and_the_step(self) -> None:
        images, texts = self.features()

        def at_step(seed: int, step: int) -> float:
            term = HardNegativeMixing(4, 2, seed=seed)
            return call(term, images, texts, torch.tensor(9.0), self.GROUPS, step=step).item()

        assert at_step(0, 5) == at_step(0, 5)
        assert len({at_step(seed, step) for seed, step in ((0, 5), (0, 6), (1, 5), (5, 0))}) == 4

    def test_all_of_one_group_have_nothing_to_tell_apart(self) -> None:
        images, texts = (part.requires_grad_() for part in self.features())
        same = np.zeros(7, np.int64)
        for term, more in ((SimCSE(), {}), (PositiveMixing(), {}), (HardNegativeMixing(3, 4), {"step": 0})):
            loss = call(term, images, texts, torch.tensor(9.0), same, **more)
            loss.backward()
            assert loss.item() == 0.0
        for part in (images, texts):
            assert part.grad is not None and torch.all(part.grad == 0)

    def test_known_positives_get_no_gradient(self) -> None:
        # Everything but 0 and 1 is of one group: query 2 knows 3..6 as positives, so that none of them is pushed by it.
        groups = np.array([0, 1, 2, 2, 2, 2, 2])
        images, texts = self.features()
        texts.requires_grad_()
        for term, more in (
            (SimCSE(), {}),
            (PositiveMixing(100.0, both_ways=False), {}),
            (HardNegativeMixing(3, 4, both_ways=False), {"step": 0}),
        ):
            one = images.clone()
            one[torch.arange(7) != 2] = 0  # only query 2 has any logit that depends on texts
            (gradient,) = torch.autograd.grad(call(term, one, texts, torch.tensor(9.0), groups, **more), texts)
            assert [bool(row.any()) for row in gradient] == [True, True, True, False, False, False, False]

    @pytest.mark.parametrize("size", [0, 1, 2])
    def test_small_batches(self, size: int) -> None:
        images, texts = unit(size, 4).requires_grad_(), unit(size, 4, seed=1).requires_grad_()
        loss = call(PositiveMixing(), images, texts, torch.tensor(9.0), np.arange(size))
        loss.backward()
        assert math.isfinite(loss.item())
        assert (loss.item() == 0) == (size < 2)
        if size < 2:
            with pytest.raises(ValueError, match="k=1 is not below the batch"):
                call(HardNegativeMixing(1, 4), images, texts, ONE, np.arange(size), step=0)
        else:
            # The one negative comes 1 + 4 times.
            q, g = images.detach().double().numpy(), texts.detach().double().numpy()
            found = call(HardNegativeMixing(1, 4, both_ways=False), images, texts, ONE, np.arange(2), step=0)
            rows = [(float(q[i] @ g[i]), [float(q[i] @ g[1 - i])] * 5) for i in range(2)]
            assert found.item() == pytest.approx(numpy_contrast(1.0, rows), rel=1e-5)

    def test_identical_features(self) -> None:
        same = unit(1, 4).expand(7, 4)
        groups = np.arange(7)
        # Every logit is the same: the share of the positive is one of 7, or of 7 + 4.
        assert call(PositiveMixing(), same, same, ONE, groups).item() == pytest.approx(math.log(7), abs=1e-5)
        found = call(HardNegativeMixing(3, 4), same, same, ONE, groups, step=0)
        assert found.item() == pytest.approx(math.log(11), abs=1e-5)

    def test_scale_gradient_is_finite_where_cells_are_masked(self) -> None:
        images, texts = self.features()
        for term, more in ((PositiveMixing(), {}), (HardNegativeMixing(3, 4), {"step": 0})):
            scale = torch.tensor(9.0, requires_grad=True)
            call(term, images, texts, scale, self.GROUPS, **more).backward()
            assert scale.grad is not None and math.isfinite(scale.grad.item()) and scale.grad.item() != 0

    @pytest.mark.parametrize(
        ("term", "more"),
        [
            (SimCSE(), {}),
            (PositiveMixing(100.0, mix=0.6), {}),
            (HardNegativeMixing(3, 4), {"step": 1}),
        ],
    )
    def test_gradient_against_finite_differences(self, term: Term, more: dict[str, int]) -> None:
        """With weights that do not depend on the features, and far from where the choice of negatives turns."""
        images, texts = (part[:, :3].clone() for part in self.features(6))
        inputs = [part.requires_grad_() for part in (images, texts, torch.tensor(2.0))]
        gradients = torch.autograd.grad(call(term, *inputs, self.GROUPS, **more), inputs)
        step = 2e-3
        for part, gradient in zip(inputs, gradients, strict=True):
            flat = part.detach().view(-1)
            for place in range(len(flat)):
                kept = flat[place].item()
                ends = []
                for end in (kept + step, kept - step):
                    flat[place] = end
                    with torch.no_grad():
                        ends.append(float(call(term, *inputs, self.GROUPS, **more)))
                flat[place] = kept
                expected = (ends[0] - ends[1]) / (2 * step)
                assert gradient.reshape(-1)[place].item() == pytest.approx(expected, abs=1e-3)

    def test_contrast_without_further_negatives_masks_nothing_else(self) -> None:
        queries, keys = unit(3, 4), unit(3, 4, seed=1)
        further, none = torch.ones(3, 2, 4), torch.zeros(3, dtype=torch.bool)
        with_none = contrast(queries, keys, ONE, others(3), negatives=further, with_negatives=none)
        assert torch.equal(with_none, contrast(queries, keys, ONE, others(3)))
