"""One process of `test_terms_ddp`: the gradients of each term through DDP, on rows that are dealt out unevenly.

    python terms_worker.py RANK WORLD_SIZE RENDEZVOUS_FILE OUTPUT.npz

Rows are built from fixed seeds, so that any number of processes shares the same global batch.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import normalize
from torch.nn.parallel import DistributedDataParallel

from repair_ray.training.objectives import Distill, FineGrained, IntraModal, SoftLabels
from repair_ray.training.pairs import ABSENT

ROWS, EACH = 9, 3
# Rows of the first of two processes, all rows, and whether there are negatives.
DEALS = {
    "uneven": (6, ROWS, True),
    "one has none": (0, ROWS, True),
    "the other has none": (ROWS, ROWS, True),
    "no negatives": (5, ROWS, False),
    "one row": (1, 1, True),
    "nothing": (0, 0, True),
}


@dataclass
class Rows:
    """One worker's rows: inputs of the towers, the teacher's features, the items, and which negatives are there."""

    pixels: Tensor
    words: Tensor
    negatives: Tensor
    teacher_images: Tensor
    teacher_texts: Tensor
    mask: Tensor
    items: dict[str, np.ndarray]


class Towers(nn.Module):
    """Features of dimension 5 of images, captions and negatives, and the logit scale."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.visual, self.text = nn.Linear(6, 5), nn.Linear(4, 5)
        self.logit_scale = nn.Parameter(torch.tensor(1.5))

    def forward(self, rows: Rows) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        images, texts = self.visual(rows.pixels), self.text(rows.words)
        negatives = self.text(rows.negatives)
        return (*(normalize(part, dim=-1) for part in (images, texts, negatives)), self.logit_scale.exp())


def known(images: np.ndarray, texts: np.ndarray) -> np.ndarray:
    """Numbers that are equal modulo 4 are known positives: some captions of other rows, and some negatives."""
    return np.asarray((images[:, None] % 4 == texts[None, :] % 4) & (texts[None, :] != ABSENT))


def fine_grained(
    candidates: str, rows: Rows, images: Tensor, texts: Tensor, negatives: Tensor, scale: Tensor
) -> Tensor:
    term = FineGrained(candidates)  # type: ignore[arg-type]
    return term(images, texts, negatives, rows.mask, scale, known=known, **rows.items)


def intra_modal(rows: Rows, images: Tensor, texts: Tensor) -> Tensor:
    term = IntraModal(0.2, 0.5)
    return term(images, rows.teacher_images) + 2 * term(texts, rows.teacher_texts)


TERMS: dict[str, Callable[[Rows, Tensor, Tensor, Tensor, Tensor], Tensor]] = {
    "soft": lambda rows, i, t, n, s: SoftLabels(0.2, 0.5)(i, t, rows.teacher_images, rows.teacher_texts),
    "intra": lambda rows, i, t, n, s: intra_modal(rows, i, t),
    "distill": lambda rows, i, t, n, s: Distill(8.0)(i, t, rows.teacher_images, rows.teacher_texts, s),
    "own": lambda rows, i, t, n, s: fine_grained("own", rows, i, t, n, s),
    "batch": lambda rows, i, t, n, s: fine_grained("batch", rows, i, t, n, s),
}


def rows_of(deal: str, rank: int, world_size: int) -> Rows:
    """This process' share. Of the negatives a third is missing, so that workers have different numbers of them."""
    rng = torch.Generator().manual_seed(1)
    first, every, with_negatives = DEALS[deal]
    part = slice(0, every) if world_size == 1 else (slice(0, first), slice(first, every))[rank]
    sizes = (ROWS, 6), (ROWS, 4), (ROWS, EACH, 4), (ROWS, 7), (ROWS, 7)
    made = [torch.randn(size, generator=rng) for size in sizes]
    made[3:] = [normalize(features, dim=-1) for features in made[3:]]
    mask = (torch.rand(ROWS, EACH, generator=rng) < 0.67) & with_negatives
    mask[4] = False
    items = {
        "image_items": np.arange(ROWS),
        "text_items": np.arange(ROWS),
        "negative_items": np.where(mask.numpy(), np.arange(ROWS * EACH).reshape(ROWS, EACH), ABSENT),
    }
    return Rows(*(features[part] for features in made), mask[part], {name: own[part] for name, own in items.items()})


def run(rank: int, world_size: int) -> dict[str, np.ndarray]:
    """Gradients by deal, term and parameter, and the losses."""
    found: dict[str, np.ndarray] = {}
    for deal in DEALS:
        rows = rows_of(deal, rank, world_size)
        for name, term in TERMS.items():
            towers = Towers()
            # The soft terms do not reach the logit scale.
            encode = DistributedDataParallel(towers, find_unused_parameters=True) if world_size > 1 else towers
            loss = term(rows, *encode(rows))
            loss.backward()
            found[f"{deal}/{name}/loss"] = loss.detach().numpy()
            for parameter, value in towers.named_parameters():
                gradient = torch.zeros_like(value) if value.grad is None else value.grad
                found[f"{deal}/{name}/{parameter}"] = gradient.numpy()
    return found


if __name__ == "__main__":
    torch.set_num_threads(1)
    place, size = int(sys.argv[1]), int(sys.argv[2])
    dist.init_process_group("gloo", init_method=f"file://{sys.argv[3]}", rank=place, world_size=size)
    np.savez(sys.argv[4], **run(place, size))
    dist.destroy_process_group()
