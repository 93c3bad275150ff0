"""WiSE-FT: a retriever on the line between two, weight by weight (arXiv 2109.01903)."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from repair_ray.engines.encoder import Encoder, Preprocess
from repair_ray.engines.retriever import RetrieverError

State = dict[str, Tensor]


def interpolate(base: State, repaired: State, alpha: float) -> State:
    """`(1 - alpha) * base + alpha * repaired`, exactly either of them at 0 and 1.

    Floating-point values are mixed in float32 and keep their type; `logit_scale` is a logarithm, so its mean is the
    geometric one of the scales. Other buffers (positions, counters) are those of `repaired`.

    Raises:
        RetrieverError: other keys or shapes; names some.
    """
    if base.keys() != repaired.keys():
        names = sorted(base.keys() ^ repaired.keys())
        raise RetrieverError(
            f"the two retrievers have other weights: {len(names)} are in one alone, such as {names[0]}"
        )
    mixed = {}
    for name, before in base.items():
        after = repaired[name]
        if before.shape != after.shape:
            shapes = f"{tuple(before.shape)} and {tuple(after.shape)}"
            raise RetrieverError(f"the two retrievers have other shapes: {name} is {shapes}")
        if not after.is_floating_point():
            mixed[name] = after
            continue
        line = torch.lerp(before.float(), after.float(), alpha)
        # Where both are the same, so is what lies between, infinities of a mask included.
        mixed[name] = torch.where(before == after, after.float(), line).to(after.dtype)
    return mixed


class Blend:
    """An encoder of the retriever at one `alpha`. Several share a model, whose weights are set before each use."""

    def __init__(self, encoder: Encoder, base: State, repaired: State, alpha: float) -> None:
        self._encoder, self._base, self._repaired, self._alpha = encoder, base, repaired, alpha

    @property
    def preprocess(self) -> Preprocess:
        return self._encoder.preprocess

    def encode_pixels(self, pixels: list[Tensor]) -> np.ndarray:
        """As `Encoder.encode_pixels`."""
        self._set()
        return self._encoder.encode_pixels(pixels)

    def encode_texts(self, texts: list[str]) -> np.ndarray:
        """As `Encoder.encode_texts`."""
        self._set()
        return self._encoder.encode_texts(texts)

    def _set(self) -> None:
        self._encoder.model.load_state_dict(interpolate(self._base, self._repaired, self._alpha))


def state_of(encoder: Encoder) -> State:
    """A copy of an encoder's weights."""
    return {name: value.detach().clone() for name, value in encoder.model.state_dict().items()}
