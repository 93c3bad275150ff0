"""Collectives of the objective: features with gradient, items without. With one process each is the identity.

The backward pass of `all_gather` sums over workers what each of them has computed for the same global loss, W times
the wanted gradient; DDP divides by W. So a global loss on gathered features needs no factor of its own.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.distributed as dist
import torch.distributed.nn.functional as dist_nn
from torch import Tensor


def world_size() -> int:
    """Workers of this training run."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
    """The place of this worker among them."""
    return dist.get_rank() if dist.is_available() and dist.is_initialized() else 0


def total(value: Tensor) -> Tensor:
    """The sum of a scalar over workers, without gradient."""
    value = value.detach().clone()
    if world_size() > 1:
        dist.all_reduce(value)
    return value


def gather_features(features: Tensor) -> Tensor:
    """Features `[B_r, D]` of every worker, in rank order, with gradient. Workers may differ in `B_r`."""
    if world_size() == 1:
        return features
    sizes = _sizes(len(features), features.device)
    if not max(sizes):
        return features  # nothing anywhere, as all workers know: not every backend gathers nothing
    padded = torch.nn.functional.pad(features, (0, 0, 0, max(sizes) - len(features)))
    parts = dist_nn.all_gather(padded)
    return torch.cat([part[:size] for part, size in zip(parts, sizes, strict=True)])


def gather_items(items: np.ndarray, device: torch.device) -> np.ndarray:
    """Item indices `[B_r]` of every worker, in rank order."""
    if world_size() == 1:
        return items
    sizes = _sizes(len(items), device)
    if not max(sizes):
        return items
    padded = torch.zeros(max(sizes), dtype=torch.int64, device=device)
    padded[: len(items)] = torch.from_numpy(items).to(device)
    parts = [torch.empty_like(padded) for _ in sizes]
    dist.all_gather(parts, padded)
    joined = torch.cat([part[:size] for part, size in zip(parts, sizes, strict=True)])
    return np.asarray(joined.cpu().numpy())


def _sizes(size: int, device: torch.device) -> list[int]:
    own = torch.tensor([size], device=device)
    parts = [torch.empty_like(own) for _ in range(world_size())]
    dist.all_gather(parts, own)
    return [int(part) for part in parts]
