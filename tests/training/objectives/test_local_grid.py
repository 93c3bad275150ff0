"""The local grid against values worked out by hand and against an independent NumPy computation."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from repair_ray.training.objectives import LocalGrid, grid_sums
from tests.training.objectives.gradients import check_gradient

ONE = torch.tensor(1.0)
EVERY = torch.ones(1, 3, dtype=torch.bool)


def by_hand() -> tuple[Tensor, Tensor]:
    """One grid whose logits at scale 1 are the logarithms of

        4 1 1        so that, as fractions, the diagonal has   of its row     2/3  2/5  3/5
        2 2 1                                                  of its column  4/7  1/3  3/4
        1 3 6

    (images are the unit axes, hence logit [i, j] = texts[j, i]).
    """
    logits = torch.tensor([[4.0, 1, 1], [2, 2, 1], [1, 3, 6]]).log()
    return torch.eye(3)[None], logits.T[None].contiguous()


def random_grids(seed: int, grids: int = 6, width: int = 5) -> tuple[Tensor, ...]:
    rng = torch.Generator().manual_seed(seed)
    images = torch.nn.functional.normalize(torch.randn(grids, 3, width, generator=rng), dim=-1)
    texts = torch.nn.functional.normalize(torch.randn(grids, 3, width, generator=rng), dim=-1)
    image_mask, text_mask = (torch.rand(grids, 3, generator=rng) < 0.75 for _ in range(2))
    known = torch.rand(grids, 3, 3, generator=rng) < 0.25
    return images, texts, image_mask, text_mask, known


def numpy_grids(
    images: np.ndarray,
    texts: np.ndarray,
    image_mask: np.ndarray,
    text_mask: np.ndarray,
    scale: float,
    known: np.ndarray,
    push_only: bool,
) -> tuple[float, int]:
    """Cell by cell: what each row and column has left, and the logarithm of its own pair's share of it."""
    total, count = 0.0, 0
    for g in range(len(images)):
        score = {
            (i, j): math.exp(scale * float(images[g, i] @ texts[g, j]))
            for i in range(3)
            for j in range(3)
            if image_mask[g, i] and text_mask[g, j] and (i == j or not known[g, i, j])
        }
        for own in range(1 if push_only else 3):
            for axis in range(2):
                line = [cell for cell in score if cell[axis] == own]
                if (own, own) in line and len(line) > 1:
                    total -= math.log(score[own, own] / sum(score[cell] for cell in line))
                    count += 1
    return total, count


class TestLocalGrid:
    def test_full_grid_by_hand(self) -> None:
        # Product of the six fractions: 2/3 * 2/5 * 3/5 * 4/7 * 1/3 * 3/4 = 4/175.
        loss = LocalGrid()(*by_hand(), EVERY, EVERY, ONE)
        assert loss.item() == pytest.approx(math.log(175 / 4) / 6, abs=1e-6)

    def test_missing_direction_by_hand(self) -> None:
        # Without place 2: rows 4/5, 2/4; columns 4/6, 2/3. Product 8/45, over four rows and columns.
        mask = torch.tensor([[True, True, False]])
        loss = LocalGrid()(*by_hand(), mask, mask, ONE)
        assert loss.item() == pytest.approx(math.log(45 / 8) / 4, abs=1e-6)

    def test_known_positive_by_hand(self) -> None:
        # Cell (1, 0) out: row 1 becomes 2/3, column 0 becomes 4/5. Product 4/75; still six rows and columns.
        known = torch.zeros(1, 3, 3, dtype=torch.bool)
        known[0, 1, 0] = True
        loss = LocalGrid()(*by_hand(), EVERY, EVERY, ONE, known)
        assert loss.item() == pytest.approx(math.log(75 / 4) / 6, abs=1e-6)

    def test_push_only_by_hand(self) -> None:
        # The anchor's row and column alone: 2/3 * 4/7 = 8/21.
        loss = LocalGrid(push_only=True)(*by_hand(), EVERY, EVERY, ONE)
        assert loss.item() == pytest.approx(math.log(21 / 8) / 2, abs=1e-6)

    def test_scale_multiplies_logits(self) -> None:
        # At scale 2 the odds are squared: row 0 becomes 16/18, column 0 16/21.
        loss = LocalGrid(push_only=True)(*by_hand(), EVERY, EVERY, torch.tensor(2.0))
        assert loss.item() == pytest.approx(-math.log(16 / 18 * 16 / 21) / 2, abs=1e-6)

    @pytest.mark.parametrize("push_only", [False, True])
    @pytest.mark.parametrize("seed", range(5))
    def test_equals_numpy(self, seed: int, push_only: bool) -> None:
        images, texts, image_mask, text_mask, known = random_grids(seed)
        loss, count = grid_sums(images, texts, image_mask, text_mask, torch.tensor(7.0), known, push_only)
        expected, rows = numpy_grids(
            images.numpy(), texts.numpy(), image_mask.numpy(), text_mask.numpy(), 7.0, known.numpy(), push_only
        )
        assert int(count) == rows > 0
        assert loss.item() == pytest.approx(expected, rel=1e-5)

    def test_mean_is_over_rows_of_all_grids(self) -> None:
        images, texts, image_mask, text_mask, known = random_grids(11)
        whole = LocalGrid()(images, texts, image_mask, text_mask, ONE, known)
        parts = [
            grid_sums(images[g, None], texts[g, None], image_mask[g, None], text_mask[g, None], ONE, known[g, None])
            for g in range(len(images))
        ]
        expected = sum(float(loss) for loss, _ in parts) / sum(int(count) for _, count in parts)
        assert whole.item() == pytest.approx(expected, rel=1e-5)

    def test_absent_items_do_not_count(self) -> None:
        images, texts, image_mask, text_mask, known = random_grids(3)
        before = grid_sums(images, texts, image_mask, text_mask, ONE, known)
        images[~image_mask], texts[~text_mask] = 100.0, -100.0
        after = grid_sums(images, texts, image_mask, text_mask, ONE, known)
        assert torch.equal(before[0], after[0]) and torch.equal(before[1], after[1])

    @pytest.mark.parametrize("grids", [0, 2])
    def test_nothing_left_gives_zero(self, grids: int) -> None:
        # The anchor's own pair stands alone: nothing to tell apart, neither loss nor NaN, and a gradient of zeros.
        images = torch.nn.functional.normalize(torch.ones(grids, 3, 4), dim=-1).requires_grad_()
        mask = torch.zeros(grids, 3, dtype=torch.bool)
        mask[:, 0] = True
        loss = LocalGrid()(images, images, mask, mask, ONE)
        loss.backward()
        assert loss.item() == 0.0
        assert images.grad is not None and torch.all(images.grad == 0)

    def test_all_known_gives_zero(self) -> None:
        images, texts = by_hand()
        loss = LocalGrid()(images, texts, EVERY, EVERY, ONE, torch.ones(1, 3, 3, dtype=torch.bool))
        assert loss.item() == 0.0

    def test_masked_and_known_cells_get_no_gradient(self) -> None:
        images, texts = by_hand()
        texts.requires_grad_()
        mask = torch.tensor([[True, True, False]])
        known = torch.zeros(1, 3, 3, dtype=torch.bool)
        known[0, 1, 0] = True
        LocalGrid()(images, texts, mask, EVERY, ONE, known).backward()
        assert texts.grad is not None
        cells = texts.grad[0].T  # [i, j]: gradient of the logit of image i and text j
        assert torch.isfinite(cells).all()
        assert cells[1, 0] == 0  # known
        assert torch.all(cells[2] == 0)  # image 2 is not there
        assert cells[0, 1] > 0 and cells[0, 2] > 0 and cells[0, 0] < 0  # negatives pushed, the pair pulled

    def test_bfloat16_features_compute_in_float32(self) -> None:
        images, texts, image_mask, text_mask, known = random_grids(4)
        low = images.bfloat16(), texts.bfloat16()
        loss, _ = grid_sums(*low, image_mask, text_mask, torch.tensor(20.0), known)
        expected, _ = grid_sums(low[0].float(), low[1].float(), image_mask, text_mask, torch.tensor(20.0), known)
        assert loss.dtype == torch.float32
        assert torch.equal(loss, expected)

    def test_gradient_against_finite_differences(self) -> None:
        images, texts, image_mask, text_mask, known = random_grids(5, grids=2, width=3)

        def term(images: Tensor, texts: Tensor, scale: Tensor) -> Tensor:
            return LocalGrid()(images, texts, image_mask, text_mask, scale, known)

        check_gradient(term, images, texts, torch.tensor(2.0))
