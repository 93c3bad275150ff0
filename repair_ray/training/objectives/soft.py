"""Terms that teach the student what a frozen teacher finds similar. A teacher's features are read, never trained.

Student and teacher may have features of different dimensions, since only similarities are compared. There are no masks
of known positives: what shows the same thing, the teacher gives a similar label.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from repair_ray.training.gather import gather_features
from repair_ray.training.objectives.logits import cosine_logits


def soft_label_kl(
    images: Tensor,
    texts: Tensor,
    teacher_images: Tensor,
    teacher_texts: Tensor,
    temperature: float,
    teacher_temperature: float,
) -> Tensor:
    """SASS (SAFT, arXiv 2608.10524; methods, section 2): the teacher's in-batch rankings as soft labels.

    `KL(teacher || student)` of `softmax(cosines / temperature)`, image to text and text to image, each a mean over rows
    (`batchmean`). The mean of the two directions, as in CUSA (its `r_cross` term).

    Args:
        images, texts: the student's unit features `[B, D]`, any float dtype.
        teacher_images, teacher_texts: the teacher's unit features of the same items `[B, E]`; they get no gradient.
        temperature, teacher_temperature: above 0; the lower, the sharper.

    Returns:
        A float32 scalar; 0 for a batch of one or none.

    Raises:
        ValueError: student and teacher have different numbers of rows.
    """
    logits = cosine_logits(images, texts.T, 1 / temperature)
    labels = _teacher_logits(teacher_images, teacher_texts, 1 / teacher_temperature)
    return (_kl(logits, labels) + _kl(logits.T, labels.T)) / 2


def intra_modal_kl(
    features: Tensor, teacher_features: Tensor, temperature: float, teacher_temperature: float
) -> Tensor:
    """ISD (SAFT, arXiv 2608.10524; methods, section 2): the same on the similarities within one modality.

    Each row is a distribution over the other items: the diagonal, where each item finds itself, is left out (ours).
    The matrix is symmetric, so there is one direction.

    Args:
        features: the student's unit features `[B, D]` of one modality, any float dtype.
        teacher_features: the teacher's unit features of the same items `[B, E]`; they get no gradient.
        temperature, teacher_temperature: above 0; the lower, the sharper.

    Returns:
        A float32 scalar; 0, not NaN, for a batch of one, whose row has nothing left, or none.

    Raises:
        ValueError: student and teacher have different numbers of rows.
    """
    logits = cosine_logits(features, features.T, 1 / temperature)
    labels = _teacher_logits(teacher_features, teacher_features, 1 / teacher_temperature)
    return _kl(_off_diagonal(logits), _off_diagonal(labels))


def distillation(
    images: Tensor,
    texts: Tensor,
    teacher_images: Tensor,
    teacher_texts: Tensor,
    scale: Tensor,
    teacher_scale: float,
) -> Tensor:
    """Distillation as open_clip's `DistillClipLoss` has it: `-sum softmax(teacher logits) * log_softmax(logits)`.

    The mean over rows, then over the two directions. It is the KL divergence plus the teacher's entropy, which has no
    gradient, at the model's own logit scale, which learns from it.

    Args:
        images, texts: the student's unit features `[B, D]`, any float dtype.
        teacher_images, teacher_texts: the teacher's unit features of the same items `[B, E]`; they get no gradient.
        scale: the student's logit scale, already exponentiated, a scalar.
        teacher_scale: the teacher's, above 0.

    Returns:
        A float32 scalar; 0 for a batch of one or none.

    Raises:
        ValueError: student and teacher have different numbers of rows.
    """
    logits = cosine_logits(images, texts.T, scale)
    labels = _teacher_logits(teacher_images, teacher_texts, teacher_scale)
    return (_cross_entropy(logits, labels) + _cross_entropy(logits.T, labels.T)) / 2


def _teacher_logits(rows: Tensor, columns: Tensor, scale: float) -> Tensor:
    return cosine_logits(rows.detach(), columns.detach().T, scale)


def _off_diagonal(square: Tensor) -> Tensor:
    """`[B, B]` without its diagonal, `[B, B - 1]`. Cut out, not -inf: a difference of two infinities is NaN."""
    size = len(square)
    return square[~torch.eye(size, dtype=torch.bool, device=square.device)].view(size, max(size - 1, 0))


def _kl(logits: Tensor, labels: Tensor) -> Tensor:
    _check(logits, labels)
    divergence = F.kl_div(logits.log_softmax(-1), labels.log_softmax(-1), reduction="sum", log_target=True)
    return divergence / max(len(logits), 1)  # "batchmean", which is NaN for no rows


def _cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    _check(logits, labels)
    return -(labels.softmax(-1) * logits.log_softmax(-1)).sum() / max(len(logits), 1)


def _check(logits: Tensor, labels: Tensor) -> None:
    if logits.shape != labels.shape:  # kl_div would stretch a single row over the batch
        raise ValueError(f"the student has {len(logits)} rows and the teacher {len(labels)}; each item needs both")


class SoftLabels(nn.Module):
    """`soft_label_kl` over the items of all workers, gathered with gradient. Workers may bring different numbers."""

    def __init__(self, temperature: float, teacher_temperature: float) -> None:
        super().__init__()
        self.temperature = temperature
        self.teacher_temperature = teacher_temperature

    def forward(self, images: Tensor, texts: Tensor, teacher_images: Tensor, teacher_texts: Tensor) -> Tensor:
        """Loss of the global batch (the same on every worker).

        Args:
            images, texts: this worker's unit features `[B, D]`.
            teacher_images, teacher_texts: the teacher's of the same items, `[B, E]`.
        """
        return soft_label_kl(
            gather_features(images.float()),
            gather_features(texts.float()),
            gather_features(teacher_images.float()),
            gather_features(teacher_texts.float()),
            self.temperature,
            self.teacher_temperature,
        )


class IntraModal(nn.Module):
    """`intra_modal_kl` over the items of all workers, gathered with gradient. Workers may bring different numbers."""

    def __init__(self, temperature: float, teacher_temperature: float) -> None:
        super().__init__()
        self.temperature = temperature
        self.teacher_temperature = teacher_temperature

    def forward(self, features: Tensor, teacher_features: Tensor) -> Tensor:
        """Loss of the global batch (the same on every worker).

        Args:
            features: this worker's unit features `[B, D]` of one modality.
            teacher_features: the teacher's of the same items, `[B, E]`.
        """
        return intra_modal_kl(
            gather_features(features.float()),
            gather_features(teacher_features.float()),
            self.temperature,
            self.teacher_temperature,
        )


class Distill(nn.Module):
    """`distillation` over the items of all workers, gathered with gradient. Workers may bring different numbers."""

    def __init__(self, teacher_scale: float) -> None:
        super().__init__()
        self.teacher_scale = teacher_scale

    def forward(
        self, images: Tensor, texts: Tensor, teacher_images: Tensor, teacher_texts: Tensor, scale: Tensor
    ) -> Tensor:
        """Loss of the global batch (the same on every worker).

        Args:
            images, texts: this worker's unit features `[B, D]`.
            teacher_images, teacher_texts: the teacher's of the same items, `[B, E]`.
            scale: the student's logit scale, already exponentiated.
        """
        return distillation(
            gather_features(images.float()),
            gather_features(texts.float()),
            gather_features(teacher_images.float()),
            gather_features(teacher_texts.float()),
            scale,
            self.teacher_scale,
        )
