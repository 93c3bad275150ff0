"""One process of `test_mixing_ddp`: the terms on features of a small encoder over uneven shares of one global batch.

    python mixing_worker.py RANK WORLD_SIZE RENDEZVOUS_FILE OUTPUT.npz

Everything is built from fixed seeds, so that any number of processes computes on the same global batches.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from repair_ray.training.objectives import HardNegativeMixing, PositiveMixing, SimCSE

ITEMS = 11
GROUPS = np.array([0, 1, 2, 3, 3, 4, 5, 1, 6, 7, 8])
TERMS: dict[str, nn.Module] = {
    "simcse": SimCSE(),
    "positive_mixing": PositiveMixing(margin=0.3),
    "positive_mixing_one_way": PositiveMixing(margin=0.3, mix=0.7, both_ways=False),
    "hard_negative_mixing": HardNegativeMixing(4, 5, seed=3),
    "hard_negative_mixing_one_way": HardNegativeMixing(4, 5, "similarity", both_ways=False, seed=3),
}


class Towers(nn.Module):
    """Two small towers and a logit scale behind one forward."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.left = nn.Linear(6, 4)
        self.right = nn.Linear(6, 4)
        self.logit_scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, left: Tensor, right: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        normal = nn.functional.normalize
        return normal(self.left(left), dim=-1), normal(self.right(right), dim=-1), self.logit_scale.exp()


def known(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    return GROUPS[left][:, None] == GROUPS[right][None]


def run(rank: int, world_size: int) -> dict[str, np.ndarray]:
    """Gradients by term, step and parameter, and the losses."""
    own = np.arange(rank * ITEMS // world_size, (rank + 1) * ITEMS // world_size)
    found: dict[str, np.ndarray] = {"items": np.array(len(own))}
    for step in range(2):
        inputs = torch.randn(2, ITEMS, 6, generator=torch.Generator().manual_seed(10 + step))
        # The right item of a pair is much like the left one, so that some positives are near and others are not.
        inputs[1] = inputs[0] + 0.8 * inputs[1]
        for name, term in TERMS.items():
            towers = Towers()
            model: nn.Module = DistributedDataParallel(towers) if world_size > 1 else towers
            left, right, scale = model(inputs[0][own], inputs[1][own])
            more = {"step": step} if isinstance(term, HardNegativeMixing) else {}
            loss = term(left, right, scale, known=known, query_items=own, positive_items=own, **more)
            loss.backward()
            found[f"{name}/{step}/loss"] = np.array(float(loss.detach()))
            for parameter, value in towers.named_parameters():
                assert value.grad is not None, parameter
                found[f"{name}/{step}/{parameter}"] = value.grad.numpy()
    return found


if __name__ == "__main__":
    torch.set_num_threads(1)
    place, size = int(sys.argv[1]), int(sys.argv[2])
    dist.init_process_group("gloo", init_method=f"file://{sys.argv[3]}", rank=place, world_size=size)
    results: dict[str, Any] = dict(run(place, size))
    np.savez(sys.argv[4], **results)
    dist.destroy_process_group()
