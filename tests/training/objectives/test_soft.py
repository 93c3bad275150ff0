"""Terms with a teacher, by hand and against independent NumPy, torch and open_clip computations."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import open_clip
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from repair_ray.training.objectives import (
    Distill,
    IntraModal,
    SoftLabels,
    distillation,
    info_nce,
    intra_modal_kl,
    soft_label_kl,
)
from tests.training.objectives.gradients import check_definition

STUDENT, TEACHER = 0.3, 0.7  # temperatures
SCALE, TEACHER_SCALE = torch.tensor(6.0), 9.0


def unit(seed: int, *shape: int) -> Tensor:
    return F.normalize(torch.randn(*shape, generator=torch.Generator().manual_seed(seed)), dim=-1)


def pairs(seed: int, rows: int = 5) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Student features of dimension 4, teacher features of dimension 7."""
    return unit(seed, rows, 4), unit(seed + 100, rows, 4), unit(seed + 200, rows, 7), unit(seed + 300, rows, 7)


def shares(query: np.ndarray, candidates: list[np.ndarray], scale: float) -> list[float]:
    """The softmax over candidates, one product at a time."""
    scores = [
        scale * sum(float(q) * float(c) for q, c in zip(query, candidate, strict=True)) for candidate in candidates
    ]
    weights = [math.exp(score - max(scores)) for score in scores]
    return [weight / sum(weights) for weight in weights]


def divergence(teacher: list[float], student: list[float]) -> float:
    return sum(p * math.log(p / q) for p, q in zip(teacher, student, strict=True) if p > 0)


def surprise(teacher: list[float], student: list[float]) -> float:
    return -sum(p * math.log(q) for p, q in zip(teacher, student, strict=True) if p > 0)


def both_directions(
    compare: Callable[[list[float], list[float]], float],
    images: np.ndarray,
    texts: np.ndarray,
    teacher_images: np.ndarray,
    teacher_texts: np.ndarray,
    scale: float,
    teacher_scale: float,
) -> float:
    total = 0.0
    for i in range(len(images)):
        label = shares(teacher_images[i], list(teacher_texts), teacher_scale)
        total += compare(label, shares(images[i], list(texts), scale)) / len(images)
        label = shares(teacher_texts[i], list(teacher_images), teacher_scale)
        total += compare(label, shares(texts[i], list(images), scale)) / len(texts)
    return total / 2


def within(features: np.ndarray, teacher: np.ndarray, scale: float, teacher_scale: float) -> float:
    total = 0.0
    for i in range(len(features)):
        others = [j for j in range(len(features)) if j != i]
        if others:
            label = shares(teacher[i], [teacher[j] for j in others], teacher_scale)
            total += divergence(label, shares(features[i], [features[j] for j in others], scale)) / len(features)
    return total


def kl_to_even(*odds: float) -> float:
    """KL of a distribution with these odds to the even one."""
    return sum(odd / sum(odds) * math.log(odd / sum(odds) * len(odds)) for odd in odds)


class TestSoftLabels:
    # Teacher logits [[ln 3, 0], [ln 2, ln 2]]: rows with odds 3:1 and 1:1, columns with odds 3:2 and 1:2.
    TEACHER = torch.eye(2), torch.tensor([[3.0, 2], [1, 2]]).log()
    NOTHING = torch.zeros(2, 3)  # a student that finds everything alike

    def test_even_student_by_hand(self) -> None:
        rows, columns = (kl_to_even(3, 1) + 0) / 2, (kl_to_even(3, 2) + kl_to_even(1, 2)) / 2
        loss = SoftLabels(1.0, 1.0)(self.NOTHING, self.NOTHING, *self.TEACHER)
        assert kl_to_even(3, 1) == pytest.approx(3 / 4 * math.log(3 / 2) + 1 / 4 * math.log(1 / 2))
        assert loss.item() == pytest.approx((rows + columns) / 2, abs=1e-6)

    def test_even_teacher_by_hand(self) -> None:
        # The divergence is the teacher's from the student: 1/2 ln(1/2 / p) + 1/2 ln(1/2 / (1 - p)).
        expected = sum(-math.log(4 * p * (1 - p)) / 2 for p in (3 / 4, 1 / 2, 3 / 5, 1 / 3)) / 4
        loss = SoftLabels(1.0, 1.0)(*self.TEACHER, self.NOTHING, self.NOTHING)
        assert loss.item() == pytest.approx(expected, abs=1e-6)

    def test_temperatures_by_hand(self) -> None:
        # At temperature 1/2 odds are squared: 9:1 and 1:1 in rows, 9:4 and 1:4 in columns.
        expected = (kl_to_even(9, 1) + kl_to_even(9, 4) + kl_to_even(1, 4)) / 4
        loss = SoftLabels(0.1, 0.5)(self.NOTHING, self.NOTHING, *self.TEACHER)
        assert loss.item() == pytest.approx(expected, abs=1e-6)
        # A student of half the teacher's logits at half the temperature agrees with it.
        half = self.TEACHER[0], self.TEACHER[1] / 2
        assert SoftLabels(0.5, 1.0)(*half, *self.TEACHER).item() == pytest.approx(0, abs=1e-7)
        assert SoftLabels(1.0, 1.0)(*half, *self.TEACHER).item() > 0.01

    @pytest.mark.parametrize("seed", range(3))
    def test_value_and_gradient_equal_numpy(self, seed: int) -> None:
        images, texts, *teacher = pairs(seed)
        labels = [part.double().numpy() for part in teacher]
        check_definition(
            lambda i, t: SoftLabels(STUDENT, TEACHER)(i, t, *teacher),
            lambda i, t: both_directions(divergence, i, t, labels[0], labels[1], 1 / STUDENT, 1 / TEACHER),
            images,
            texts,
        )

    def test_equals_torch_batchmean(self) -> None:
        images, texts, teacher_images, teacher_texts = pairs(7, rows=11)
        logits, labels = images @ texts.T / STUDENT, teacher_images @ teacher_texts.T / TEACHER
        directions = ((logits, labels), (logits.T, labels.T))
        expected = sum(F.kl_div(a.log_softmax(1), b.softmax(1), reduction="batchmean") / 2 for a, b in directions)
        found = soft_label_kl(images, texts, teacher_images, teacher_texts, STUDENT, TEACHER)
        assert torch.allclose(found, torch.as_tensor(expected), atol=1e-6)

    def test_one_hot_teacher_is_infonce(self) -> None:
        # Labels without entropy: each item's own counterpart, every other probability exactly 0.
        images, texts, *_ = pairs(3)
        teacher = torch.eye(5)
        assert torch.all((teacher / 1e-3).softmax(1) == torch.eye(5))
        loss = SoftLabels(1 / 8, 1e-3)(images, texts, teacher, teacher)
        assert torch.allclose(loss, info_nce(images, texts, torch.tensor(8.0)), atol=1e-6)

    def test_agreement_gives_zero_loss_and_gradient(self) -> None:
        # Turned into other axes of a larger space, the teacher is the student.
        images, texts, *_ = pairs(4)
        turn = torch.linalg.qr(torch.randn(7, 7, generator=torch.Generator().manual_seed(1)))[0][:4]
        images.requires_grad_()
        loss = SoftLabels(0.2, 0.2)(images, texts, images.detach() @ turn, texts @ turn)
        loss.backward()
        assert loss.item() == pytest.approx(0, abs=1e-6)
        assert images.grad is not None and images.grad.abs().max() < 1e-5

    def test_identical_features(self) -> None:
        # Student rows are even whatever the temperature, so that the loss is ln B less the teacher's entropy.
        same = unit(1, 1, 4).expand(5, 4)
        *_, teacher_images, teacher_texts = pairs(5)
        labels = teacher_images @ teacher_texts.T / TEACHER
        entropy = sum(-(x.softmax(1) * x.log_softmax(1)).sum(1).mean() / 2 for x in (labels, labels.T))
        loss = SoftLabels(0.01, TEACHER)(same, same, teacher_images, teacher_texts)
        assert loss.item() == pytest.approx(math.log(5) - float(entropy), abs=1e-5)
        assert SoftLabels(0.01, 0.01)(same, same, same, same).item() == pytest.approx(0, abs=1e-6)


class TestIntraModal:
    def test_by_hand(self) -> None:
        # Products f0.f1 = 0, f0.f2 = ln 3, f1.f2 = 0: rows with odds 1:3, 1:1, 3:1. The diagonal is left out.
        teacher = torch.tensor([[1.0, 0], [0, 1], [math.log(3), 0]])
        loss = IntraModal(1.0, 1.0)(torch.zeros(3, 5), teacher)
        assert loss.item() == pytest.approx(2 * kl_to_even(3, 1) / 3, abs=1e-6)
        loss = IntraModal(1.0, 0.5)(torch.zeros(3, 5), teacher)
        assert loss.item() == pytest.approx(2 * kl_to_even(9, 1) / 3, abs=1e-6)

    @pytest.mark.parametrize("rows", [2, 5])
    @pytest.mark.parametrize("seed", range(2))
    def test_value_and_gradient_equal_numpy(self, seed: int, rows: int) -> None:
        features, _, teacher, _ = pairs(seed, rows)
        labels = teacher.double().numpy()
        check_definition(
            lambda part: IntraModal(STUDENT, TEACHER)(part, teacher),
            lambda part: within(part, labels, 1 / STUDENT, 1 / TEACHER),
            features,
        )

    def test_equals_torch_batchmean(self) -> None:
        features, _, teacher, _ = pairs(8, rows=6)
        logits, labels = features @ features.T / STUDENT, teacher @ teacher.T / TEACHER
        logits, labels = (
            torch.stack([torch.cat([row[:i], row[i + 1 :]]) for i, row in enumerate(part)]) for part in (logits, labels)
        )
        expected = F.kl_div(logits.log_softmax(1), labels.softmax(1), reduction="batchmean")
        assert torch.allclose(intra_modal_kl(features, teacher, STUDENT, TEACHER), expected, atol=1e-6)

    def test_diagonal_does_not_count(self) -> None:
        # Longer vectors at right angles to all others change nothing but the diagonal.
        features, _, teacher, _ = pairs(9)
        longer = torch.cat([features, 3 * torch.eye(5)], dim=1)
        before, after = (IntraModal(STUDENT, TEACHER)(part, teacher) for part in (features, longer))
        assert before.item() == pytest.approx(after.item(), abs=1e-6) and before > 0.01

    def test_two_items_have_one_choice_each(self) -> None:
        features, _, teacher, _ = pairs(2, rows=2)
        assert IntraModal(STUDENT, TEACHER)(features, teacher).item() == 0.0

    def test_one_hot_teacher(self) -> None:
        # Twins: items 0 and 1, items 2 and 3. Each label is the twin, so that the loss is the cross-entropy of it.
        teacher = torch.eye(2).repeat_interleave(2, 0)
        features = unit(6, 4, 3)
        own = features.double().numpy()
        expected = 0.0
        for i, twin in enumerate([1, 0, 3, 2]):
            others = [j for j in range(4) if j != i]
            expected -= math.log(shares(own[i], [own[j] for j in others], 1 / STUDENT)[others.index(twin)]) / 4
        assert IntraModal(STUDENT, 1e-3)(features, teacher).item() == pytest.approx(expected, rel=1e-5)


class TestDistill:
    def test_by_hand(self) -> None:
        # Teacher as in TestSoftLabels, an even student: each row and column costs ln 2, whatever its label.
        teacher = TestSoftLabels.TEACHER
        assert Distill(1.0)(torch.zeros(2, 3), torch.zeros(2, 3), *teacher, SCALE).item() == pytest.approx(math.log(2))
        # That teacher as the student, against its own labels at scale 1: the mean entropy of rows and columns.
        entropy = [math.log(2) - kl_to_even(*odds) for odds in ((3, 1), (1, 1), (3, 2), (1, 2))]
        loss = Distill(1.0)(*teacher, *teacher, torch.tensor(1.0))
        assert loss.item() == pytest.approx(sum(entropy) / 4, abs=1e-6)

    @pytest.mark.parametrize("seed", range(3))
    def test_value_and_gradient_equal_numpy(self, seed: int) -> None:
        images, texts, *teacher = pairs(seed)
        labels = [part.double().numpy() for part in teacher]
        check_definition(
            lambda i, t, s: Distill(TEACHER_SCALE)(i, t, *teacher, s),
            lambda i, t, s: both_directions(surprise, i, t, labels[0], labels[1], float(s), TEACHER_SCALE),
            images,
            texts,
            SCALE,
        )

    def test_equals_open_clip(self) -> None:
        student, teacher = pairs(5, rows=9)[:2], pairs(5, rows=9)[2:]
        _, expected = open_clip.loss.DistillClipLoss()(*student, SCALE, *teacher, torch.tensor(TEACHER_SCALE))
        assert torch.allclose(Distill(TEACHER_SCALE)(*student, *teacher, SCALE), expected, atol=1e-6)

    def test_gradient_is_that_of_soft_labels(self) -> None:
        # They differ by the teacher's entropy, a constant.
        images, texts, *teacher = pairs(6)
        images.requires_grad_()
        found = [
            distillation(images, texts, *teacher, SCALE, TEACHER_SCALE),
            soft_label_kl(images, texts, *teacher, 1 / float(SCALE), 1 / TEACHER_SCALE),
        ]
        assert found[0] > found[1] + 0.1
        gradients = [torch.autograd.grad(loss, images)[0] for loss in found]
        assert torch.allclose(*gradients, atol=1e-6)


TERMS: dict[str, Callable[..., Tensor]] = {
    "soft labels": SoftLabels(STUDENT, TEACHER),
    "intra-modal": lambda images, texts, *teacher: IntraModal(STUDENT, TEACHER)(images, teacher[0]),
    "distill": lambda *parts: Distill(TEACHER_SCALE)(*parts, SCALE),
}


@pytest.mark.parametrize("term", TERMS.values(), ids=TERMS.keys())
class TestEveryTerm:
    @pytest.mark.parametrize("rows", [0, 1])
    def test_nothing_to_compare_gives_zero(self, term: Callable[..., Tensor], rows: int) -> None:
        images, texts, *teacher = pairs(1, rows)
        images.requires_grad_()
        loss = term(images, texts, *teacher)
        loss.backward()
        assert loss.item() == 0.0
        assert images.grad is not None and torch.all(images.grad == 0)

    def test_teacher_gets_no_gradient(self, term: Callable[..., Tensor]) -> None:
        images, texts, *teacher = (part.requires_grad_() for part in pairs(2))
        term(images, texts, *teacher).backward()
        assert images.grad is not None and images.grad.abs().max() > 1e-3
        assert all(part.grad is None for part in teacher)

    @pytest.mark.parametrize("autocast", [False, True])
    def test_computes_in_float32(self, term: Callable[..., Tensor], autocast: bool) -> None:
        low = [part.bfloat16() for part in pairs(3)]
        expected = term(*(part.float() for part in low))
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            found = [term(*low), term(*(part.float() for part in low))]
        assert all(loss.dtype == torch.float32 and torch.equal(loss, expected) for loss in found)

    def test_sharp_logits_stay_finite(self, term: Callable[..., Tensor]) -> None:
        images, texts, *teacher = (50 * part for part in pairs(4))
        images.requires_grad_()
        term(images, texts, *teacher).backward()
        assert images.grad is not None and torch.isfinite(images.grad).all()

    @pytest.mark.parametrize("rows", [1, 4])
    def test_rows_without_a_teacher_are_refused(self, term: Callable[..., Tensor], rows: int) -> None:
        images, texts, *_ = pairs(5)
        *_, teacher_images, teacher_texts = pairs(5, rows)
        with pytest.raises(ValueError, match=f"5 rows and the teacher {rows}"):
            term(images, texts, teacher_images, teacher_texts)
