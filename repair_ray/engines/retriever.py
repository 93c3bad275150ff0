"""What identifies a retriever. Apart from `encoder`, so that naming one loads no model library."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


class RetrieverError(Exception):
    """The retriever cannot be built; the message names the model or file and what to do."""


@dataclass(frozen=True)
class RetrieverSpec:
    """What identifies a retriever. `weights` is an open_clip pretrained tag or a file; None: random weights."""

    model: str
    weights: str | None = None
    precision: str = "fp32"


def is_file(weights: str) -> bool:
    """Whether `weights` is meant as a checkpoint file rather than as an open_clip pretrained tag."""
    return weights.endswith((".safetensors", ".pt", ".pth", ".bin")) or Path(weights).exists()
