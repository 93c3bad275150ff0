"""Validation inside text-only training: Spearman's correlation on scored pairs of sentences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from repair_ray.engines.encoder import Preprocess
from repair_ray.evaluation.sts import pair_cosines, spearman

# A model that puts no two pairs in an order is worse than any that does.
NO_ORDER = -100.0


class StsValidator:
    """Holds the tokens of scored pairs; scores a model by how it ranks them."""

    def __init__(
        self, first: Sequence[str], second: Sequence[str], scores: np.ndarray, preprocess: Preprocess, device: str
    ) -> None:
        self._scores = scores
        self._tokens = preprocess.tokens([*first, *second])
        self._device = device

    @torch.inference_mode()
    def score(self, model: nn.Module, batch_size: int = 256) -> float:
        """Spearman's correlation x 100 of cosines and scores; -100 where the cosines are all the same."""
        training = model.training
        network: Any = model.eval()
        parts = [network.encode_text(part.to(self._device)).float().cpu() for part in self._tokens.split(batch_size)]
        model.train(training)
        first, second = np.split(torch.cat(parts).numpy(), 2)
        found = spearman(pair_cosines(first, second), self._scores)
        return NO_ORDER if found is None else found
