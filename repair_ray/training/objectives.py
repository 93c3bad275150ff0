"""The terms that training minimises, as small classes on features. Pure torch; every term computes in float32.

Over several workers each term's gradient, averaged by DDP, equals the single-process gradient on the global batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from repair_ray.training.gather import gather_features, gather_items, total, world_size

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
    logits = _cosines(images, texts.T, scale)
    if known is not None:
        logits = logits.masked_fill(known & ~torch.eye(len(logits), dtype=torch.bool, device=logits.device), -torch.inf)
    targets = torch.arange(len(logits), device=logits.device)
    return (F.cross_entropy(logits, targets) + F.cross_entropy(logits.T, targets)) / 2


def _cosines(images: Tensor, texts: Tensor, scale: Tensor) -> Tensor:
    """Scaled products in float32, also under autocast, which would take a float32 matmul back to bfloat16."""
    with torch.autocast(images.device.type, enabled=False):
        return scale.float() * images.float() @ texts.float()


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


def grid_sums(
    images: Tensor,
    texts: Tensor,
    image_mask: Tensor,
    text_mask: Tensor,
    scale: Tensor,
    known: Tensor | None = None,
    push_only: bool = False,
) -> tuple[Tensor, Tensor]:
    """Cross-entropy of each row and column of 3x3 grids (methods, section 1, step 5): their sum, and how many they are.

    Args:
        images, texts: unit features `[G, 3, D]`; place 0 is the anchor pair, 1 the i2t pair, 2 the t2i pair.
        image_mask, text_mask: bool `[G, 3]`, False where a grid has no such item (its features are ignored).
        scale: logit scale, a scalar.
        known: bool `[G, 3, 3]`; an off-diagonal cell that is a known positive is masked.
        push_only: only the anchors' rows and columns count: synthetic items push, and are never pulled (ablation).

    Returns:
        Two float32 scalars. A row counts when its own pair is complete and at least one negative is left in it, and so
        does a column: a row with nothing to tell apart gives 0, not NaN.
    """
    logits = _cosines(images, texts.transpose(1, 2), scale)
    eye = torch.eye(3, dtype=torch.bool, device=logits.device)
    cells = image_mask[:, :, None] & text_mask[:, None, :]
    if known is not None:
        cells = cells & (eye | ~known)
    pair = image_mask & text_mask
    if push_only:
        pair = pair & (torch.arange(3, device=logits.device) == 0)
    loss, count = logits.new_zeros(()), logits.new_zeros(())
    for scores, there in ((logits, cells), (logits.transpose(1, 2), cells.transpose(1, 2))):
        rows = pair & ((there & ~eye).any(-1))
        kept = scores.masked_fill(~there, -torch.inf)[rows]
        target = torch.arange(3, device=logits.device).expand(len(scores), 3)[rows]
        loss = loss + F.cross_entropy(kept, target, reduction="sum")
        count = count + rows.sum()
    return loss, count


class LocalGrid(nn.Module):
    """The local hard-pair loss: symmetric cross-entropy inside each 3x3 grid, averaged over counting rows and columns.

    The mean is over the grids of all workers, so that workers may bring different numbers of them.
    """

    def __init__(self, push_only: bool = False) -> None:
        super().__init__()
        self.push_only = push_only

    def forward(
        self,
        images: Tensor,
        texts: Tensor,
        image_mask: Tensor,
        text_mask: Tensor,
        scale: Tensor,
        known: Tensor | None = None,
    ) -> Tensor:
        """See `grid_sums`. This worker's share of the loss times the number of workers, which DDP's average undoes."""
        loss, count = grid_sums(images, texts, image_mask, text_mask, scale, known, self.push_only)
        return world_size() * loss / total(count).clamp_min(1)


@torch.no_grad()
def clamp_logit_scale_(logit_scale: nn.Parameter, maximum: float = MAX_LOGIT_SCALE) -> None:
    """Keep the logit scale's logarithm within [0, ln 100], in place (CLIP)."""
    logit_scale.clamp_(0, maximum)
