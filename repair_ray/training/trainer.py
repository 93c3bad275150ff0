"""One training step at a time, without Ray: model, optimiser, schedule, objective, state to save and load."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from repair_ray.config import ObjectiveConfig, TrainingConfig
from repair_ray.training.batches import Batch
from repair_ray.training.items import TeacherFeatures
from repair_ray.training.objective import Encoded, Objective
from repair_ray.training.objectives import clamp_logit_scale_
from repair_ray.training.pairs import PairSet
from repair_ray.training.parameters import parameter_groups, prepare


@dataclass
class StepReport:
    """What one step did: loss terms, and the items that it encoded on this worker (the unit of equal compute)."""

    losses: dict[str, float]
    images: int
    texts: int


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


class Schedule(Protocol):
    """The settings of a schedule, such as those of `TrainingConfig`."""

    @property
    def lr(self) -> float: ...
    @property
    def steps(self) -> int: ...
    @property
    def warmup(self) -> float: ...


def learning_rate(step: int, config: Schedule) -> float:
    """Linear warm-up, then half a cosine to zero; a function of the step alone, so that resuming continues it."""
    warmup = max(1, round(config.warmup * config.steps))
    if step < warmup:
        return config.lr * (step + 1) / warmup
    return config.lr * 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(1, config.steps - warmup)))


class Trainer:
    """Minimises an objective over batches, one optimiser step at a time."""

    def __init__(
        self,
        model: nn.Module,
        pairs: PairSet,
        config: TrainingConfig,
        objective: ObjectiveConfig,
        *,
        teacher: TeacherFeatures | None = None,
        seed: int = 0,
        wrap: Callable[[nn.Module], nn.Module] = lambda module: module,
        device: str = "cpu",
    ) -> None:
        self.model = prepare(model.to(device).train(), config)
        self.encode = wrap(DualEncoder(self.model))
        self.objective = Objective(objective, pairs, teacher, seed)
        self.config = config
        self.device = device
        self.optimizer = torch.optim.AdamW(
            parameter_groups(self.model, config.weight_decay, config.lr, config.layer_decay),
            lr=config.lr,
            betas=config.betas,
            fused=True,
        )

    def step(self, number: int, batch: Batch, pixels: Tensor, tokens: Tensor) -> StepReport:
        """One optimiser step on normalised `pixels [N, 3, H, W]` and `tokens [M, L]` of the batch's items."""
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(number, self.config) * group["scale"]
        with torch.autocast(self.device, torch.bfloat16, enabled=self.config.precision == "bf16"):
            images, texts, scale = self.encode(pixels.to(self.device), tokens.to(self.device))
        losses = self.objective(Encoded(number, batch, images.float(), texts.float(), scale.float()))
        # Nothing is unreached: DDP waits for a gradient of each parameter, also of those that no term takes.
        loss = torch.stack(list(losses.values())).sum() + 0.0 * (images.sum() + texts.sum() + scale).float()
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        if self.config.grad_clip:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.config.grad_clip)
        self.optimizer.step()
        clamp_logit_scale_(self.model.logit_scale)  # type: ignore[arg-type]
        report = {name: float(value.detach()) for name, value in losses.items()}
        return StepReport(report, len(batch.images), len(batch.captions))
