"""InfoNCE against values worked out by hand and against independent NumPy and open_clip computations."""

from __future__ import annotations

import math

import numpy as np
import open_clip
import pytest
import torch
from torch import Tensor

from repair_ray.training.objectives import MAX_LOGIT_SCALE, InfoNCE, clamp_logit_scale_, info_nce
from tests.training.objectives.gradients import check_gradient

ONE = torch.tensor(1.0)


class TestInfoNCE:
    @staticmethod
    def features(seed: int, pairs: int = 8, width: int = 6) -> tuple[Tensor, Tensor]:
        rng = torch.Generator().manual_seed(seed)
        made = torch.nn.functional.normalize(torch.randn(2, pairs, width, generator=rng), dim=-1)
        return made[0], made[1]

    def test_two_pairs_by_hand(self) -> None:
        # Logits [[ln 3, 0], [ln 2, ln 2]]: rows 3/4, 2/4; columns 3/5, 2/3. Mean of each side, then of both.
        images, texts = torch.eye(2), torch.tensor([[3.0, 2], [1, 2]]).log()
        expected = -(math.log(3 / 4 * 2 / 4) / 2 + math.log(3 / 5 * 2 / 3) / 2) / 2
        assert info_nce(images, texts, ONE).item() == pytest.approx(expected, abs=1e-6)

    @pytest.mark.parametrize("seed", range(3))
    def test_equals_open_clip(self, seed: int) -> None:
        images, texts = self.features(seed)
        scale = torch.tensor(14.3)
        assert torch.allclose(info_nce(images, texts, scale), open_clip.ClipLoss()(images, texts, scale), atol=1e-6)

    def test_known_positives_equal_numpy(self) -> None:
        images, texts = self.features(9)
        known = torch.rand(8, 8, generator=torch.Generator().manual_seed(1)) < 0.3
        loss = 0.0
        for one, two, match in ((images, texts, known), (texts, images, known.T)):
            logits = 5.0 * one.double().numpy() @ two.double().numpy().T
            for row in range(8):
                left = [logits[row, j] for j in range(8) if j == row or not match[row, j]]
                loss += (math.log(sum(math.exp(x) for x in left)) - logits[row, row]) / 16
        assert info_nce(images, texts, torch.tensor(5.0), known).item() == pytest.approx(loss, rel=1e-5)

    def test_known_positives_are_never_pushed(self) -> None:
        texts = torch.rand(3, 3, generator=torch.Generator().manual_seed(2), requires_grad=True)
        known = torch.eye(3, dtype=torch.bool)
        known[0, 1] = True
        info_nce(torch.eye(3), texts, ONE, known).backward()
        assert texts.grad is not None
        cells = texts.grad.T
        assert cells[0, 1] == 0
        assert cells[1, 0] > 0 and cells[0, 2] > 0
        assert torch.all(cells.diagonal() < 0)

    def test_all_known_gives_zero(self) -> None:
        images, texts = self.features(1)
        assert info_nce(images, texts, ONE, torch.ones(8, 8, dtype=torch.bool)).item() == 0.0

    def test_empty_batch_gives_zero_with_a_gradient(self) -> None:
        images, texts = torch.zeros(0, 4, requires_grad=True), torch.zeros(0, 4, requires_grad=True)
        loss = info_nce(images, texts, ONE)
        loss.backward()
        assert loss.item() == 0.0 and images.grad is not None

    def test_bfloat16_features_compute_in_float32(self) -> None:
        images, texts = (part.bfloat16() for part in self.features(2))
        loss = info_nce(images, texts, torch.tensor(50.0))
        assert loss.dtype == torch.float32
        assert torch.equal(loss, info_nce(images.float(), texts.float(), torch.tensor(50.0)))

    def test_gradient_against_finite_differences(self) -> None:
        images, texts = self.features(3, pairs=4, width=3)
        known = torch.zeros(4, 4, dtype=torch.bool)
        known[2, 0] = True
        check_gradient(lambda i, t, s: info_nce(i, t, s, known), images, texts, torch.tensor(3.0))

    def test_module_asks_for_known_positives_by_item(self) -> None:
        images, texts = self.features(4)
        groups_i, groups_t = np.array([0, 1, 2, 0, 4, 5, 6, 7]) + 50, np.array([0, 1, 2, 3, 4, 5, 6, 6]) + 50

        def known(image_items: np.ndarray, text_items: np.ndarray) -> np.ndarray:
            return np.asarray(image_items[:, None] == text_items[None, :])

        found = InfoNCE()(images, texts, torch.tensor(9.0), known=known, image_items=groups_i, text_items=groups_t)
        match = torch.from_numpy(groups_i[:, None] == groups_t[None])
        assert torch.equal(found, info_nce(images, texts, torch.tensor(9.0), match))
        assert not torch.equal(found, info_nce(images, texts, torch.tensor(9.0)))


@pytest.mark.parametrize(("start", "end"), [(9.0, math.log(100)), (-3.0, 0.0), (2.5, 2.5)])
def test_logit_scale_is_clamped(start: float, end: float) -> None:
    scale = torch.nn.Parameter(torch.tensor(start))
    clamp_logit_scale_(scale)
    assert scale.item() == pytest.approx(end, abs=1e-6)
    assert scale.requires_grad and pytest.approx(100) == math.exp(MAX_LOGIT_SCALE)
