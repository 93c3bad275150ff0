"""Gradient caching: a contrastive batch of any size in the memory of a part of it (GradCache, arXiv 2101.06983).

The loss of a batch needs all its features at once, but no activations: encode part by part without a graph, take the
gradients of the loss with respect to the features, then encode part by part again and carry those on. The gradients
are those of the plain step, for every objective that works on features. It costs a second forward pass.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from repair_ray.run import RunError

Hold = Callable[[], contextlib.AbstractContextManager[Any]]


class Part(Protocol):
    """Encodes one part of a batch: its rows of each kind of feature, None for a kind of which it has none.

    `again` asks for the second time, when kinds that nothing is trained for may be left out.
    """

    def __call__(self, again: bool) -> Sequence[Tensor | None]: ...


def split(counts: Sequence[int], size: int) -> list[tuple[slice, ...]]:
    """Parts of at most `size` items of each kind, in order; the last one has some of every kind that has any.

    Returns:
        For each part a slice for each kind, empty where a kind has fewer parts than another.
    """
    # From the end: DDP averages gradients after the last part, which has to reach every parameter.
    kinds = [[slice(max(0, end - size), end) for end in range(count, 0, -size)] for count in counts]
    return list(reversed(list(zip_longest(*kinds, fillvalue=slice(0, 0)))))


def backward(
    parts: Sequence[Part],
    loss: Callable[..., Tensor],
    *,
    encoder: nn.Module,
    device: str = "cpu",
    graphs: bool = False,
) -> None:
    """Add the gradients of `loss` to those of the parameters that `parts` encode with.

    A single part is the plain step. Of several each draws the same random numbers both times, so that dropout drops
    the same.

    Args:
        parts: their rows of each kind, joined, are the batch's. The last one reaches every parameter.
        loss: from the features, a tensor `[N, ...]` for each kind, to a scalar that has a gradient for each of them.
        encoder: what `parts` encode with; of DDP, only the last part's backward pass averages over workers.
        graphs: the first time builds graphs, too, and drops them: a compiled tower is another program without.
    """
    if len(parts) == 1:
        loss(*parts[0](False)).backward()
        return
    hold: Hold = getattr(encoder, "no_sync", contextlib.nullcontext)
    draws, encoded = [], []
    for part in parts:
        draws.append(_draws(device))
        with hold(), torch.set_grad_enabled(graphs):
            encoded.append([None if rows is None else rows.detach() for rows in part(False)])
    kinds = list(zip(*encoded, strict=True))
    sizes = [[0 if rows is None else len(rows) for rows in kind] for kind in kinds]
    features = [torch.cat([rows for rows in kind if rows is not None]).requires_grad_() for kind in kinds]
    loss(*features).backward()
    gradients = [_gradient(feature).split(size) for feature, size in zip(features, sizes, strict=True)]
    with torch.random.fork_rng([torch.cuda.current_device()] if device == "cuda" else []):
        for number, part in enumerate(parts):
            _draw_again(draws[number], device)
            with contextlib.nullcontext() if number + 1 == len(parts) else hold():
                made = zip(part(True), gradients, strict=True)
                reached = [(rows, kind[number]) for rows, kind in made if rows is not None and rows.requires_grad]
                if reached:
                    torch.autograd.backward([rows for rows, _ in reached], [gradient for _, gradient in reached])


def check_divisible(model: nn.Module) -> None:
    """Raises `RunError` for a model whose features of an item depend on the other items that are encoded with it."""
    if any(isinstance(module, _BatchNorm) and module.training for module in model.modules()):
        raise RunError(
            "training.micro_batch: the retriever normalises by batch statistics, and those of a part are not the "
            "batch's. Take micro_batch out, freeze that tower, or take a retriever without batch normalisation"
        )


def _gradient(feature: Tensor) -> Tensor:
    assert feature.grad is not None, "the loss leaves out a kind of feature"
    return feature.grad


def _draws(device: str) -> tuple[Tensor, ...]:
    cpu = torch.get_rng_state()
    return (cpu, torch.cuda.get_rng_state()) if device == "cuda" else (cpu,)


def _draw_again(state: tuple[Tensor, ...], device: str) -> None:
    torch.set_rng_state(state[0])
    if device == "cuda":
        torch.cuda.set_rng_state(state[1])
