"""Gradients of terms by means that do not know autograd."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
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


def check_definition(term: Callable[..., Tensor], definition: Callable[..., float], *parts: Tensor) -> None:
    """Value and gradients of a float32 term against a NumPy definition, in float64 and by central differences of it."""
    inputs = [part.clone().requires_grad_() for part in parts]
    loss = term(*inputs)
    assert loss.dtype == torch.float32
    arrays = [np.array(part.double().numpy(), order="C") for part in parts]
    assert loss.item() == pytest.approx(definition(*arrays), rel=1e-5, abs=2e-6)
    for gradient, array in zip(torch.autograd.grad(loss, inputs), arrays, strict=True):
        expected, flat = np.zeros(array.size), array.reshape(-1)
        for place in range(array.size):
            kept, ends = flat[place], []
            for flat[place] in (kept + 1e-5, kept - 1e-5):
                ends.append(definition(*arrays))
            flat[place] = kept
            expected[place] = (ends[0] - ends[1]) / 2e-5
        np.testing.assert_allclose(gradient.numpy(), expected.reshape(array.shape), rtol=1e-4, atol=1e-5)
