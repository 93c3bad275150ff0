"""Compiled towers: `torch.compile`, and what it needs."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from repair_ray.run import RunError

COMPILERS = ("g++", "c++", "clang++")


def compiled(tower: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """What `torch.compile` makes of a function of rows `[N, ...]`; it is compiled when it is first called."""
    program = torch.compile(tower)

    def call(rows: Tensor, **options: Any) -> Tensor:
        # Batches differ in their numbers of items: one program for all numbers, not one for each.
        torch._dynamo.maybe_mark_dynamic(rows, 0)
        return program(rows, **options)

    return call


def check_compiler(device: str) -> None:
    """Raises `RunError` on a CPU without a C++ compiler, as PyTorch would in the first step."""
    if device == "cpu" and not any(map(shutil.which, COMPILERS)):
        raise RunError("training.compile needs a C++ compiler on every worker: install g++, or take it out")
