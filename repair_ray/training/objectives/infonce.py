"""CLIP's InfoNCE over pairs, and the clamp of its logit scale."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from repair_ray.training.gather import gather_features, gather_items
from repair_ray.training.objectives.logits import cosine_logits

Known = Callable[[np.ndarray, np.ndarray], np.ndarray]
MAX_LOGIT_SCALE = math.log(100)


def info_nce(images: Tensor, texts: Tensor, scale: Tensor, known: Tensor | None = None) -> Tensor:
    """CLIP's symmetric InfoNCE of pairs (i, i).

    Args:
        images, texts: unit features `[B, D]`, any float dtype.
        scale: the logit scale, already exponentiated, a scalar.
        known: bool `[B, B]`; off the diagonal, True marks a known positive, which is taken out of the softmax and so
            never pushed away.

    Returns:
        The mean over rows and columns, a float32 scalar; 0 for an empty batch.
    """
    if len(images) == 0:
        return images.float().sum() + texts.float().sum()
    logits = cosine_logits(images, texts.T, scale)
    if known is not None:
        logits = logits.masked_fill(known & ~torch.eye(len(logits), dtype=torch.bool, device=logits.device), -torch.inf)
    targets = torch.arange(len(logits), device=logits.device)
    return (F.cross_entropy(logits, targets) + F.cross_entropy(logits.T, targets)) / 2


class InfoNCE(nn.Module):
    """`info_nce` over the pairs of all workers, gathered with gradient.

    Workers may bring different numbers of pairs. Used for anchors alone (RePair's global term), and for anchors
    together with corrected pairs when those are dispersed into the global batch.
    """

    def forward(
        self,
        images: Tensor,
        texts: Tensor,
        scale: Tensor,
        *,
        known: Known,
        image_items: np.ndarray,
        text_items: np.ndarray,
    ) -> Tensor:
        """Loss of the global batch (the same on every worker).

        Args:
            images, texts: this worker's unit features `[B, D]`.
            known: tells which of image items `[N]` and text items `[M]` are known positives, as bool `[N, M]`.
            image_items, text_items: what the features are features of, int64 `[B]`.
        """
        images, texts = gather_features(images.float()), gather_features(texts.float())
        match = known(gather_items(image_items, images.device), gather_items(text_items, images.device))
        return info_nce(images, texts, scale, torch.from_numpy(match).to(images.device))


@torch.no_grad()
def clamp_logit_scale_(logit_scale: nn.Parameter, maximum: float = MAX_LOGIT_SCALE) -> None:
    """Keep the logit scale's logarithm within [0, ln 100], in place (CLIP)."""
    logit_scale.clamp_(0, maximum)
