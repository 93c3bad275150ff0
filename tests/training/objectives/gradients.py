"""Gradients of terms by means that do not know autograd."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor


def check_gradient(
    term: Callable[[Tensor, Tensor, Tensor], Tensor], images: Tensor, texts: Tensor, scale: Tensor
) -> None:
    """Autograd against central differences of the float32 term, entry by entry."""
    inputs = [part.clone().requires_grad_() for part in (images, texts, scale)]
    gradients = torch.autograd.grad(term(*inputs), inputs)
    step = 1e-2
    for part, gradient in zip(inputs, gradients, strict=True):
        flat = part.detach().view(-1)
        for place in range(len(flat)):
            kept = flat[place].item()
            ends = []
            for end in (kept + step, kept - step):
                flat[place] = end
                with torch.no_grad():
                    ends.append(float(term(*inputs)))
            flat[place] = kept
            assert gradient.reshape(-1)[place].item() == pytest.approx((ends[0] - ends[1]) / (2 * step), abs=5e-4)
