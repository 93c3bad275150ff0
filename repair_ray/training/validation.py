"""Validation inside training: mean R@1 of both directions on the validation split."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from repair_ray.data.store import ImageStore
from repair_ray.engines.encoder import Preprocess
from repair_ray.training.items import read_items


class Validator:
    """Holds the validation pictures and tokens; scores a model with equal texts and groups counted as positives."""

    def __init__(self, folder: str, store: ImageStore, preprocess: Preprocess, device: str) -> None:
        items, pairs = read_items(folder)
        self._pixels = torch.stack([preprocess.pixels(store.rgb(*reference)) for reference in items.images])
        self._tokens = preprocess.tokens(list(items.texts))
        self._known = torch.from_numpy(pairs.known(np.arange(len(items.images)), np.arange(len(items.texts))))
        self._preprocess = preprocess
        self._device = device

    @torch.inference_mode()
    def score(self, model: nn.Module, batch_size: int = 256) -> float:
        """Mean of R@1 `i2t` and `t2i`, in percent; ties count against the model."""
        # A frozen tower has a mode of its own.
        modes = [(module, module.training) for module in model.modules()]
        network: Any = model.eval()
        images = torch.cat(
            [
                network.encode_image(self._preprocess.normalise(part.to(self._device)), normalize=True)
                for part in self._pixels.split(batch_size)
            ]
        )
        texts = torch.cat(
            [network.encode_text(part.to(self._device), normalize=True) for part in self._tokens.split(batch_size)]
        )
        scores = (images.float() @ texts.float().T).cpu()
        for module, training in modes:
            module.training = training
        return 50 * (_hits(scores, self._known) + _hits(scores.T, self._known.T))


def _hits(scores: Tensor, known: Tensor) -> float:
    right = scores.masked_fill(~known, -torch.inf).amax(1)
    wrong = scores.masked_fill(known, -torch.inf).amax(1)
    return float((right > wrong).float().mean())
