"""RePair's local hard-pair loss."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from repair_ray.training.gather import total, world_size
from repair_ray.training.objectives.logits import cosine_logits


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
    logits = cosine_logits(images, texts.transpose(1, 2), scale)
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
