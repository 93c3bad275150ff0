"""Terms with negative captions of each pair: SAN's fine-grained loss, and the form of NegCLIP and TripletCLIP."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from repair_ray.training.gather import gather_features, gather_items, total, world_size
from repair_ray.training.objectives.infonce import Known
from repair_ray.training.objectives.logits import cosine_logits

Candidates = Literal["own", "batch"]


def own_negative_sums(
    images: Tensor, texts: Tensor, negatives: Tensor, mask: Tensor, scale: Tensor
) -> tuple[Tensor, Tensor]:
    """SAN's `L_fine` (arXiv 2607.09263; methods, section 3): InfoNCE of images against their caption and own negatives.

    Args:
        images, texts: unit features of pairs `[F, D]`, any float dtype.
        negatives: unit features of the negative captions of each pair `[F, K, D]`.
        mask: bool `[F, K]`, False where a pair has no such negative (its features are ignored).
        scale: the logit scale, already exponentiated, a scalar.

    Returns:
        Two float32 scalars: the sum over rows, and how many rows count. A row without a negative has nothing to tell
        apart: it gives 0 and does not count (ours).
    """
    negatives = negatives.masked_fill(~mask[..., None], 0)  # what is ignored may be NaN, and 0 * NaN has no gradient
    candidates = torch.cat([texts[:, None], negatives], dim=1)
    logits = cosine_logits(images[:, None], candidates.transpose(1, 2), scale)[:, 0]
    logits = logits.masked_fill(~F.pad(mask, (1, 0), value=True), -torch.inf)
    target = torch.zeros(len(logits), dtype=torch.int64, device=logits.device)
    return F.cross_entropy(logits, target, reduction="sum"), mask.any(-1).sum().to(logits.dtype)


def negclip(images: Tensor, texts: Tensor, negatives: Tensor, scale: Tensor, known: Tensor | None = None) -> Tensor:
    """Symmetric InfoNCE whose images also see every negative caption, as in NegCLIP and TripletCLIP.

    `1/2 (CE([s I T^T | s I N^T], arange) + CE(s T I^T, arange))`: negative captions have no image of their own, so the
    text side is that of InfoNCE. NegCLIP has hard images and their captions among the rows; TripletCLIP adds the same
    with negative images and captions as the pairs, and the captions as the negatives.

    Args:
        images, texts: unit features of pairs `[F, D]`, any float dtype.
        negatives: unit features of negative captions `[N, D]`, of whichever pair.
        scale: the logit scale, already exponentiated, a scalar.
        known: bool `[F, F + N]`, captions first; except for a row's own caption, True marks a known positive, which is
            taken out of the softmax and so never pushed away.

    Returns:
        The mean over rows, then over the two sides, a float32 scalar; 0 for no rows. `info_nce` where N is 0.
    """
    rows = len(images)
    logits = cosine_logits(images, torch.cat([texts.float(), negatives.float()]).T, scale)
    if rows == 0:
        return logits.sum()
    if known is not None:
        own = torch.eye(*logits.shape, dtype=torch.bool, device=logits.device)
        logits = logits.masked_fill(known & ~own, -torch.inf)
    targets = torch.arange(rows, device=logits.device)
    return (F.cross_entropy(logits, targets) + F.cross_entropy(logits[:, :rows].T, targets)) / 2


class FineGrained(nn.Module):
    """Pairs with negative captions: against a pair's own negatives (SAN), or those of the whole batch (NegCLIP).

    `own` is `own_negative_sums`, averaged over the counting rows of all workers, without a gather. `batch` is `negclip`
    over the pairs and negatives of all workers, gathered apart and with gradient. In both, a negative that is a known
    positive of the image is masked. Workers may bring different numbers of pairs and negatives.
    """

    def __init__(self, candidates: Candidates) -> None:
        super().__init__()
        self.candidates = candidates

    def forward(
        self,
        images: Tensor,
        texts: Tensor,
        negatives: Tensor,
        mask: Tensor,
        scale: Tensor,
        *,
        known: Known,
        image_items: np.ndarray,
        text_items: np.ndarray,
        negative_items: np.ndarray,
    ) -> Tensor:
        """`own`: this worker's share times the number of workers, which DDP's average undoes. `batch`: the global loss.

        Args:
            images, texts: this worker's unit features `[F, D]`.
            negatives: unit features `[F, K, D]`.
            mask: bool `[F, K]`, False where a pair has no such negative (its features are ignored).
            scale: the logit scale, already exponentiated, a scalar.
            known: tells which of image items `[N]` and text items `[M]` are known positives, as bool `[N, M]`.
            image_items, text_items: what the features are features of, int64 `[F]`.
            negative_items: the same of the negatives, int64 `[F, K]`, `ABSENT` where there is none.
        """
        if self.candidates == "own":
            match = torch.from_numpy(_known_negatives(known, image_items, negative_items))
            loss, count = own_negative_sums(images, texts, negatives, mask & ~match.to(mask.device), scale)
            return world_size() * loss / total(count).clamp_min(1)
        device = images.device
        columns = [gather_items(part, device) for part in (text_items, negative_items[mask.cpu().numpy()])]
        match = torch.from_numpy(known(gather_items(image_items, device), np.concatenate(columns)))
        return negclip(
            gather_features(images.float()),
            gather_features(texts.float()),
            gather_features(negatives.float()[mask]),  # those that are there: the others need no column
            scale,
            match.to(device),
        )


def _known_negatives(known: Known, image_items: np.ndarray, negative_items: np.ndarray) -> np.ndarray:
    """Which negatives are known positives of their own image, bool `[F, K]`."""
    found = np.zeros(negative_items.shape, bool)
    for row, items in enumerate(negative_items):
        found[row] = known(image_items[row : row + 1], items)[0]
    return found
