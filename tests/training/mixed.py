"""What the tests of hard-negative mixing share: features, and an independent float64 computation with loops."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from repair_ray.training.objectives.mixing import EPS, Mix

MIXES: tuple[Mix, ...] = ("uniform", "similarity")


def unit(*shape: int, seed: int = 0) -> Tensor:
    made = torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
    return torch.nn.functional.normalize(made, dim=-1)


def at(*cosines: float) -> Tensor:
    """Unit vectors in the plane at these cosines with the first axis; the angles' signs alternate."""
    return torch.tensor([[c, (-1) ** n * math.sqrt(1 - c * c)] for n, c in enumerate(cosines)])


def others(size: int) -> Tensor:
    return ~torch.eye(size, dtype=torch.bool)


def random_allowed(size: int, seed: int) -> Tensor:
    return torch.rand(size, size, generator=torch.Generator().manual_seed(seed)) < 0.6


def numpy_positives(
    queries: np.ndarray, positives: np.ndarray, allowed: np.ndarray, margin: float, mix: float | None
) -> np.ndarray:
    """Row by row, by the words of methods, section 4."""
    found = []
    for i, query in enumerate(queries):
        d1 = float(query @ positives[i])
        ranked = sorted((float(query @ positives[j]), j) for j in range(len(positives)) if j != i and allowed[i, j])
        if not ranked or (d1 - ranked[-1][0]) / abs(d1) > margin:
            found.append(positives[i])
            continue
        d2, j = ranked[-1]
        w = max(d1, EPS) / (max(d1, EPS) + max(d2, EPS)) if mix is None else mix
        mixture = w * positives[i] + (1 - w) * positives[j]
        found.append(mixture / math.sqrt(float(mixture @ mixture)))
    return np.array(found)


def numpy_contrast(scale: float, rows: list[tuple[float, list[float]]]) -> float:
    """Mean of -log of the positive's share; a row is its positive's cosine and its negatives' cosines."""
    total = 0.0
    for right, wrong in rows:
        total -= math.log(math.exp(scale * right) / sum(math.exp(scale * c) for c in (right, *wrong)))
    return total / len(rows)
