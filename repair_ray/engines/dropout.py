"""Dropout for text towers that have none, so that two passes over one text differ (SimCSE, section 3)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from repair_ray.engines.retriever import RetrieverError


class TextDropout:
    """Dropout in an open_clip text tower, hung on as hooks: its weights keep their names, and evaluation is as before.

    It acts on the embedded tokens and on what attention and the MLP of each block add. What is dropped depends on the
    seed and on a text's place in the global batch, not on the worker that encodes it. A Hugging Face tower has dropout
    of its own, of PyTorch's global generator; that is left as it is (ours).

    Raises:
        RetrieverError: a tower with neither blocks of open_clip nor dropout of its own.
    """

    def __init__(self, model: nn.Module, rate: float) -> None:
        self.rate = rate
        self._rows: tuple[int, int, int] | None = None
        self._generator: torch.Generator | None = None
        tower: Any = getattr(model, "text", model)
        transformer: Any = getattr(tower, "transformer", None)
        blocks = getattr(transformer, "resblocks", None)
        self.own = blocks is None
        if blocks is None:
            if not any(isinstance(part, nn.Dropout) and part.p > 0 for part in tower.modules()):
                raise RetrieverError(
                    f"the text tower {type(tower).__name__} has no dropout, and no blocks to hang it on: two passes "
                    "over a text would be the same. Take an open_clip tower, or a Hugging Face one with dropout"
                )
            return
        transformer.register_forward_pre_hook(self._before)
        for block in blocks:
            block.attn.register_forward_hook(self._after)
            block.mlp.register_forward_hook(self._after)

    def begin(self, seed: int, start: int, stop: int, total: int, device: str) -> None:
        """The next forward pass holds rows `start` to `stop` of the global batch of `total` texts, twice.

        First those of the one pass, then the same of the other.
        """
        self._rows = (start, stop, total)
        self._generator = torch.Generator(device).manual_seed(seed)
        if self.own:
            torch.manual_seed((seed + start) % 2**63)

    def _before(self, module: nn.Module, arguments: tuple[Any, ...]) -> tuple[Any, ...] | None:
        return (self._drop(arguments[0]), *arguments[1:]) if module.training else None

    def _after(self, module: nn.Module, _: object, output: Any) -> Any:
        if not module.training:
            return None
        return (self._drop(output[0]), *output[1:]) if isinstance(output, tuple) else self._drop(output)

    def _drop(self, features: Tensor) -> Tensor:
        if self._rows is None:
            raise RuntimeError("begin() comes before a forward pass in training")
        start, stop, total = self._rows
        if len(features) != 2 * (stop - start):
            raise RetrieverError(f"the text tower works on {tuple(features.shape)}, which is not a row for each text")
        # Drawn for the whole global batch, so that every number of workers drops the same.
        kept = torch.empty(2, total, *features.shape[1:], device=features.device)
        kept.bernoulli_(1 - self.rate, generator=self._generator)
        return features * kept[:, start:stop].reshape(features.shape).to(features.dtype) / (1 - self.rate)
