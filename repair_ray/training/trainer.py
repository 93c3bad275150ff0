"""One training step at a time, without Ray: model, optimiser, schedule, objective, state to save and load."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from repair_ray.config import ObjectiveConfig, TrainingConfig
from repair_ray.training.batches import Batch
from repair_ray.training.objectives import InfoNCE, LocalGrid, clamp_logit_scale_
from repair_ray.training.pairs import ABSENT, PairSet


@dataclass
class StepReport:
    """What one step did: loss terms, and the items that it encoded on this worker (the unit of equal compute)."""

    losses: dict[str, float]
    images: int
    texts: int


# Parameters that no loss on features of both towers reaches: SigLIP's bias, CoCa's caption decoder.
UNREACHED = ("logit_bias", "text_decoder.")


class DualEncoder(nn.Module):
    """Both towers behind one forward, so that DDP sees one call a step."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, pixels: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Unit features `[N, D]`, `[M, D]` and the logit scale."""
        model: Any = self.model
        return (
            model.encode_image(pixels, normalize=True),
            model.encode_text(tokens, normalize=True),
            model.logit_scale.exp(),
        )


def learning_rate(step: int, config: TrainingConfig) -> float:
    """Linear warm-up, then half a cosine to zero; a function of the step alone, so that resuming continues it."""
    warmup = max(1, round(config.warmup * config.steps))
    if step < warmup:
        return config.lr * (step + 1) / warmup
    return config.lr * 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(1, config.steps - warmup)))


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Gains, biases and the logit scale go without weight decay."""
    named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    plain = [p for name, p in named if p.ndim < 2]
    decayed = [p for name, p in named if p.ndim >= 2]
    return [{"params": decayed, "weight_decay": weight_decay}, {"params": plain, "weight_decay": 0.0}]


class Trainer:
    """Minimises `infonce` over anchors plus the hard pairs where `placement` puts them (methods, section 1, step 5)."""

    def __init__(
        self,
        model: nn.Module,
        pairs: PairSet,
        config: TrainingConfig,
        objective: ObjectiveConfig,
        *,
        wrap: Callable[[nn.Module], nn.Module] = lambda module: module,
        device: str = "cpu",
    ) -> None:
        self.model = model.to(device).train()
        for name, parameter in self.model.named_parameters():
            if name.startswith(UNREACHED):
                parameter.requires_grad_(False)  # DDP waits for a gradient of each parameter that wants one
        self.encode = wrap(DualEncoder(self.model))
        self.pairs = pairs
        self.config = config
        self.objective = objective
        self.device = device
        self.optimizer = torch.optim.AdamW(
            parameter_groups(self.model, config.weight_decay), lr=config.lr, betas=config.betas, fused=True
        )
        self._infonce = InfoNCE()
        self._local = LocalGrid(push_only=objective.push_only)

    def step(self, number: int, batch: Batch, pixels: Tensor, tokens: Tensor) -> StepReport:
        """One optimiser step on normalised `pixels [N, 3, H, W]` and `tokens [M, L]` of the batch's items."""
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(number, self.config)
        with torch.autocast(self.device, torch.bfloat16, enabled=self.config.precision == "bf16"):
            images, texts, scale = self.encode(pixels.to(self.device), tokens.to(self.device))
        losses = self._losses(batch, images.float(), texts.float(), scale.float())
        loss = torch.stack(list(losses.values())).sum()
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        if self.config.grad_clip:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.config.grad_clip)
        self.optimizer.step()
        clamp_logit_scale_(self.model.logit_scale)  # type: ignore[arg-type]
        report = {name: float(value.detach()) for name, value in losses.items()}
        return StepReport(report, len(batch.images), len(batch.captions))

    def _losses(self, batch: Batch, images: Tensor, texts: Tensor, scale: Tensor) -> dict[str, Tensor]:
        placement = self.objective.placement
        rows = batch.anchors
        if placement in ("dispersed", "both"):
            rows = np.concatenate([rows, batch.extra])
        image_items, text_items = batch.images[rows[:, 0]], batch.captions[rows[:, 1]]
        losses = {
            "infonce": self._infonce(
                images[rows[:, 0]],
                texts[rows[:, 1]],
                scale,
                known=self.pairs.known,
                image_items=image_items,
                text_items=text_items,
            )
        }
        if placement in ("local", "both") and self.objective.local_weight > 0:
            losses["local_grid"] = self.objective.local_weight * self._grid_loss(batch, images, texts, scale)
        return losses

    def _grid_loss(self, batch: Batch, images: Tensor, texts: Tensor, scale: Tensor) -> Tensor:
        slots_i, slots_t = batch.grid_images, batch.grid_captions
        known = (
            np.stack(
                [
                    self.pairs.known(_items(batch.images, i), _items(batch.captions, t))
                    for i, t in zip(slots_i, slots_t, strict=True)
                ]
            )
            if len(slots_i)
            else np.zeros((0, 3, 3), bool)
        )
        own = self.objective.local_scale
        return self._local(
            images[np.maximum(slots_i, 0)],
            texts[np.maximum(slots_t, 0)],
            torch.from_numpy(slots_i != ABSENT).to(self.device),
            torch.from_numpy(slots_t != ABSENT).to(self.device),
            scale if own is None else torch.tensor(own, device=self.device),
            torch.from_numpy(known).to(self.device),
        )


def _items(items: np.ndarray, slots: np.ndarray) -> np.ndarray:
    return np.where(slots == ABSENT, ABSENT, items[np.maximum(slots, 0)])
