"""What every term begins with."""

from __future__ import annotations

import torch
from torch import Tensor


def cosine_logits(rows: Tensor, columns: Tensor, scale: Tensor | float) -> Tensor:
    """Scaled products in float32, also under autocast, which would take a float32 matmul back to bfloat16.

    Args:
        rows, columns: unit features `[..., N, D]` and, transposed, `[..., D, M]`, any float dtype.
        scale: the logit scale, already exponentiated, a scalar; or one over a temperature.

    Returns:
        float32 `[..., N, M]`.
    """
    factor = scale.float() if isinstance(scale, Tensor) else scale
    with torch.autocast(rows.device.type, enabled=False):
        return factor * rows.float() @ columns.float()
