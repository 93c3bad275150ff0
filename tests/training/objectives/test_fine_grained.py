"""Terms with negative captions, by hand and against independent NumPy computations of SAN, NegCLIP and TripletCLIP."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from repair_ray.training.objectives import Candidates, FineGrained, info_nce, negclip, own_negative_sums
from repair_ray.training.pairs import ABSENT
from tests.training.objectives.gradients import check_definition

ONE, SCALE = torch.tensor(1.0), torch.tensor(5.0)
ROWS, EACH, WIDTH = 4, 3, 5


def unit(seed: int, *shape: int) -> Tensor:
    return F.normalize(torch.randn(*shape, generator=torch.Generator().manual_seed(seed)), dim=-1)


def random_rows(seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Features, and a mask in which row 1 has no negative and row 2 all."""
    mask = torch.rand(ROWS, EACH, generator=torch.Generator().manual_seed(seed)) < 0.6
    mask[1], mask[2] = False, True
    return unit(seed, ROWS, WIDTH), unit(seed + 50, ROWS, WIDTH), unit(seed + 90, ROWS, EACH, WIDTH), mask


def items_of(mask: Tensor) -> dict[str, np.ndarray]:
    """Images 0, 1, ..., captions 100, 101, ..., negatives 1000, 1001, ... in reading order, `ABSENT` where masked."""
    rows, negatives = len(mask), np.arange(mask.numel()).reshape(mask.shape) + 1000
    return {
        "image_items": np.arange(rows),
        "text_items": np.arange(rows) + 100,
        "negative_items": np.where(mask.numpy(), negatives, ABSENT),
    }


def knows(*matches: tuple[int, int]) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """Known positives: each image with its own caption, and these (image, text) items."""

    def known(images: np.ndarray, texts: np.ndarray) -> np.ndarray:
        cells = [[(i, t) in matches or t == i + 100 for t in texts.tolist()] for i in images.tolist()]
        return np.array(cells, bool).reshape(len(images), len(texts))

    return known


def share(image: np.ndarray, own: np.ndarray, others: list[np.ndarray], scale: float) -> float:
    """-ln of the own candidate's softmax share among itself and the others."""
    scores = [scale * sum(float(a) * float(b) for a, b in zip(image, text, strict=True)) for text in (own, *others)]
    return math.log(sum(math.exp(score - scores[0]) for score in scores))


def san(images: np.ndarray, texts: np.ndarray, negatives: np.ndarray, scale: float, there: np.ndarray) -> float:
    """L_fine: the mean over images that have a negative."""
    rows = [f for f in range(len(images)) if there[f].any()]
    each = [
        share(images[f], texts[f], [negatives[f, k] for k in range(there.shape[1]) if there[f, k]], scale) for f in rows
    ]
    return sum(each) / max(len(each), 1)


def batch_form(
    images: np.ndarray,
    texts: np.ndarray,
    negatives: np.ndarray,
    scale: float,
    there: np.ndarray,
    known: Collection[tuple[int, int]] = (),
) -> float:
    """Each image among all captions and all negatives that are there; each caption among all images."""
    rows = range(len(images))
    total = 0.0
    for f in rows:
        others = [texts[g] for g in rows if g != f and (f, g + 100) not in known]
        for place in np.argwhere(there):
            number = int(place[0]) * there.shape[1] + int(place[1]) + 1000
            if (f, number) not in known:
                others.append(negatives[tuple(place)])
        total += share(images[f], texts[f], others, scale)
        total += share(texts[f], images[f], [images[g] for g in rows if g != f and (g, f + 100) not in known], scale)
    return total / (2 * len(images))


class TestOwn:
    """Images are the unit axes, so that logits are chosen freely: logit of image f and a text is the text's entry f."""

    IMAGES = torch.eye(2)
    TEXTS = torch.tensor([[6.0, 1], [1, 3]]).log()
    NEGATIVES = torch.tensor([[[2.0, 9], [1, 9]], [[9, 1], [9, 2]]]).log()

    def found(self, mask: list[list[bool]], scale: Tensor = ONE, *matches: tuple[int, int]) -> float:
        there = torch.tensor(mask)
        term = FineGrained("own")
        return term(
            self.IMAGES, self.TEXTS, self.NEGATIVES, there, scale, known=knows(*matches), **items_of(there)
        ).item()

    def test_by_hand(self) -> None:
        # Row 0: 6 of 6 + 2 + 1. Row 1: 3 of 3 + 1 + 2.
        expected = -(math.log(6 / 9) + math.log(3 / 6)) / 2
        assert self.found([[True, True], [True, True]]) == pytest.approx(expected, abs=1e-6)

    def test_absent_negatives_by_hand(self) -> None:
        expected = -(math.log(6 / 7) + math.log(3 / 6)) / 2
        assert self.found([[False, True], [True, True]]) == pytest.approx(expected, abs=1e-6)
        # A row without a negative does not count.
        assert self.found([[False, False], [True, True]]) == pytest.approx(math.log(2), abs=1e-6)

    def test_scale_by_hand(self) -> None:
        # At scale 2 weights are squared: 36 of 36 + 4 + 1, 9 of 9 + 1 + 4.
        expected = -(math.log(36 / 41) + math.log(9 / 14)) / 2
        assert self.found([[True, True], [True, True]], torch.tensor(2.0)) == pytest.approx(expected, abs=1e-6)

    def test_known_positive_by_hand(self) -> None:
        # Negative 1000 (2, of row 0) is a known positive of image 0; that of image 1 in row 0 changes nothing.
        expected = -(math.log(6 / 7) + math.log(3 / 6)) / 2
        matches = (0, 1000), (1, 1001)
        assert self.found([[True, True], [True, True]], ONE, *matches) == pytest.approx(expected, abs=1e-6)
        # All of row 0 known: the row does not count.
        matches = (0, 1000), (0, 1001)
        assert self.found([[True, True], [True, True]], ONE, *matches) == pytest.approx(math.log(2), abs=1e-6)

    @pytest.mark.parametrize("seed", range(3))
    def test_value_and_gradient_equal_numpy(self, seed: int) -> None:
        *features, mask = random_rows(seed)

        def term(images: Tensor, texts: Tensor, negatives: Tensor, scale: Tensor) -> Tensor:
            return FineGrained("own")(images, texts, negatives, mask, scale, known=knows(), **items_of(mask))

        check_definition(term, lambda i, t, n, s: san(i, t, n, float(s), mask.numpy()), *features, SCALE)

    def test_counts_rows_with_a_negative(self) -> None:
        *features, mask = random_rows(1)
        loss, count = own_negative_sums(*features, mask, SCALE)
        assert count.item() == mask.any(1).sum().item() == 3
        expected = 3 * san(*(part.double().numpy() for part in features), 5.0, mask.numpy())
        assert loss.item() == pytest.approx(expected, rel=1e-5)


class TestBatch:
    @staticmethod
    def numpy(features: list[Tensor]) -> list[np.ndarray]:
        return [part.double().numpy() for part in features]

    def test_by_hand(self) -> None:
        # Logits [[ln 6, 0], [0, ln 3]] and one negative, of row 1, with weights 2 and 4. Images: 6 of 6 + 1 + 2, 3 of
        # 1 + 3 + 4. Captions: 6 of 6 + 1, 3 of 1 + 3.
        mask = torch.tensor([[False], [True]])
        negatives = torch.tensor([[[7.0, 7]], [[2, 4]]]).log()
        loss = FineGrained("batch")(torch.eye(2), TestOwn.TEXTS, negatives, mask, ONE, known=knows(), **items_of(mask))
        expected = -(math.log(6 / 9 * 3 / 8) / 2 + math.log(6 / 7 * 3 / 4) / 2) / 2
        assert loss.item() == pytest.approx(expected, abs=1e-6)
        # Caption 0 is a known positive of image 1, and the negative one of image 0. Images: 6 of 6 + 1, 3 of 3 + 4.
        # Captions: 6 of 6, 3 of 1 + 3.
        known = knows((1, 100), (0, 1001))
        loss = FineGrained("batch")(torch.eye(2), TestOwn.TEXTS, negatives, mask, ONE, known=known, **items_of(mask))
        expected = -(math.log(6 / 7 * 3 / 7) / 2 + math.log(3 / 4) / 2) / 2
        assert loss.item() == pytest.approx(expected, abs=1e-6)

    @pytest.mark.parametrize("seed", range(3))
    def test_value_and_gradient_equal_numpy(self, seed: int) -> None:
        *features, mask = random_rows(seed)
        matches = {(0, 102), (3, 101), (1, 1006), (2, 1006), (0, 1008)}

        def term(images: Tensor, texts: Tensor, negatives: Tensor, scale: Tensor) -> Tensor:
            known, items = knows(*matches), items_of(mask)
            return FineGrained("batch")(images, texts, negatives, mask, scale, known=known, **items)

        def definition(images: np.ndarray, texts: np.ndarray, negatives: np.ndarray, scale: np.ndarray) -> float:
            return batch_form(images, texts, negatives, float(scale), mask.numpy(), matches)

        check_definition(term, definition, *features, SCALE)

    def test_absent_negatives_are_columns_of_minus_infinity(self) -> None:
        *features, mask = random_rows(2)
        images, texts, negatives = features
        columns = (5 * images @ negatives.flatten(0, 1).T).masked_fill(~mask.flatten(), -torch.inf)
        logits = 5 * images @ texts.T
        every = torch.arange(ROWS)
        expected = (F.cross_entropy(torch.cat([logits, columns], 1), every) + F.cross_entropy(logits.T, every)) / 2
        found = FineGrained("batch")(*features, mask, SCALE, known=knows(), **items_of(mask))
        assert torch.allclose(found, expected, atol=1e-6)

    def test_is_tripletclip(self) -> None:
        """L = neg(I, T, T-) + neg(I-, T-, T): every caption is the other term's negative."""
        images, texts, hard_images, hard_texts = (unit(seed, ROWS, WIDTH) for seed in range(4))
        every = torch.ones(ROWS, 1, dtype=torch.bool)
        term = FineGrained("batch")
        found = term(images, texts, hard_texts[:, None], every, SCALE, known=knows(), **items_of(every)) + term(
            hard_images, hard_texts, texts[:, None], every, SCALE, known=knows(), **items_of(every)
        )
        expected = 0.0
        for i, t, n in ((images, texts, hard_texts), (hard_images, hard_texts, texts)):
            image, text, negative = self.numpy([i, t, n])
            for f in range(ROWS):
                others = [text[g] for g in range(ROWS) if g != f] + list(negative)
                expected += share(image[f], text[f], others, 5.0) / (2 * ROWS)
                expected += share(text[f], image[f], [image[g] for g in range(ROWS) if g != f], 5.0) / (2 * ROWS)
        assert found.item() == pytest.approx(expected, rel=1e-5)

    def test_is_negclip(self) -> None:
        """2B images x 4B texts (captions, captions of the hard images, negatives of both); texts only up to 2B."""
        images, texts, negatives = unit(1, 2 * ROWS, WIDTH), unit(2, 2 * ROWS, WIDTH), unit(3, 2 * ROWS, WIDTH)
        logits_per_image = 5 * images @ torch.cat([texts, negatives]).T
        assert logits_per_image.shape == (2 * ROWS, 4 * ROWS)
        labels = torch.arange(2 * ROWS)
        expected = F.cross_entropy(logits_per_image, labels) + F.cross_entropy(logits_per_image.T[: 2 * ROWS], labels)
        assert torch.allclose(negclip(images, texts, negatives, SCALE), expected / 2, atol=1e-6)
        every = torch.ones(2 * ROWS, 1, dtype=torch.bool)
        found = FineGrained("batch")(images, texts, negatives[:, None], every, SCALE, known=knows(), **items_of(every))
        assert torch.allclose(found, expected / 2, atol=1e-6)

    def test_without_negatives_it_is_infonce(self) -> None:
        images, texts = unit(1, ROWS, WIDTH), unit(2, ROWS, WIDTH)
        known = torch.rand(ROWS, ROWS, generator=torch.Generator().manual_seed(3)) < 0.3
        expected = info_nce(images, texts, SCALE, known)
        assert torch.equal(negclip(images, texts, torch.zeros(0, WIDTH), SCALE, known), expected)

    def test_known_positives_are_never_pushed(self) -> None:
        """The gradient of a logit is that of the text's entry, images being the unit axes."""
        images = torch.eye(3)
        texts, negatives = unit(1, 3, 3).requires_grad_(), unit(2, 3, 1, 3).requires_grad_()
        mask = torch.ones(3, 1, dtype=torch.bool)
        loss = FineGrained("batch")(
            images, texts, negatives, mask, ONE, known=knows((0, 101), (2, 1000)), **items_of(mask)
        )
        loss.backward()
        assert texts.grad is not None and negatives.grad is not None
        assert texts.grad[1, 0] == 0 and negatives.grad[0, 0, 2] == 0
        pushed = [
            texts.grad[0, 1],
            texts.grad[0, 2],
            texts.grad[1, 2],
            negatives.grad[0, 0, 0],
            negatives.grad[1, 0, 2],
        ]
        assert all(gradient > 0 for gradient in pushed)
        assert torch.all(texts.grad.diagonal() < 0)

    def test_all_known_gives_zero(self) -> None:
        known = torch.ones(ROWS, ROWS + 2, dtype=torch.bool)
        features = unit(1, ROWS, WIDTH), unit(2, ROWS, WIDTH), unit(3, 2, WIDTH)
        assert negclip(*features, SCALE, known).item() == 0.0


@pytest.mark.parametrize("candidates", ["own", "batch"])
class TestBoth:
    @pytest.mark.parametrize(("rows", "each"), [(0, 3), (0, 0), (1, 0)])
    def test_nothing_to_tell_apart_gives_zero(self, candidates: Candidates, rows: int, each: int) -> None:
        parts = unit(1, rows, WIDTH), unit(2, rows, WIDTH), unit(3, rows, each, WIDTH), SCALE.clone()
        images, texts, negatives, scale = (part.requires_grad_() for part in parts)
        mask = torch.ones(rows, each, dtype=torch.bool)
        loss = FineGrained(candidates)(images, texts, negatives, mask, scale, known=knows(), **items_of(mask))
        loss.backward()
        assert loss.item() == 0.0
        for part in (images, texts, negatives, scale):
            assert part.grad is not None and torch.all(part.grad == 0)

    def test_all_masked_is_the_term_without_negatives(self, candidates: Candidates) -> None:
        images, texts, negatives, mask = random_rows(4)
        mask[:] = False
        loss = FineGrained(candidates)(images, texts, negatives, mask, SCALE, known=knows(), **items_of(mask))
        assert loss.item() == (0.0 if candidates == "own" else info_nce(images, texts, SCALE).item())

    def test_absent_features_are_ignored(self, candidates: Candidates) -> None:
        *features, mask = random_rows(3)
        images, texts, negatives = (part.requires_grad_() for part in features)
        found = []
        for filled in (negatives, negatives.detach().masked_fill(~mask[..., None], torch.nan)):
            term = FineGrained(candidates)
            loss = term(images, texts, filled, mask, SCALE, known=knows(), **items_of(mask))
            found.append((loss.detach(), *torch.autograd.grad(loss, (images, texts))))
        assert all(torch.isfinite(part).all() for part in found[1])
        assert all(torch.equal(one, two) for one, two in zip(*found, strict=True))

    def test_identical_features(self, candidates: Candidates) -> None:
        # One share of all candidates: of 4 for own (K = 3); of 4 + 12 and of 4 images for batch.
        same = unit(1, 1, WIDTH)
        mask = torch.ones(ROWS, EACH, dtype=torch.bool)
        loss = FineGrained(candidates)(
            same.expand(ROWS, -1),
            same.expand(ROWS, -1),
            same.expand(ROWS, EACH, -1),
            mask,
            SCALE,
            known=knows(),
            **items_of(mask),
        )
        expected = math.log(4) if candidates == "own" else (math.log(16) + math.log(4)) / 2
        assert loss.item() == pytest.approx(expected, abs=1e-5)

    @pytest.mark.parametrize("autocast", [False, True])
    def test_computes_in_float32(self, candidates: Candidates, autocast: bool) -> None:
        *features, mask = random_rows(5)
        low = [part.bfloat16() for part in features]
        term = FineGrained(candidates)
        high = [part.float() for part in low]
        expected = term(*high, mask, torch.tensor(20.0), known=knows(), **items_of(mask))
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            for parts in (low, high):
                loss = term(*parts, mask, torch.tensor(20.0), known=knows(), **items_of(mask))
                assert loss.dtype == torch.float32 and torch.equal(loss, expected)
