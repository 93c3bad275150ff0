"""One training step at a time, without Ray: model, optimiser, schedule, objective, state to save and load."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from repair_ray.config import ObjectiveConfig, TrainingConfig
from repair_ray.training.batches import Batch
from repair_ray.training.caching import Part, backward, check_divisible, split
from repair_ray.training.compiling import check_compiler, compiled
from repair_ray.training.gather import rank
from repair_ray.training.items import TeacherFeatures
from repair_ray.training.objective import Encoded, Objective
from repair_ray.training.objectives import clamp_logit_scale_
from repair_ray.training.objectives.mixing import draw_seed
from repair_ray.training.pairs import PairSet
from repair_ray.training.parameters import IMAGE_TOWER, parameter_groups, prepare

# What the towers' own dropout is drawn from, apart from all other draws of a seed and a step.
DROPPED = 2


@dataclass
class StepReport:
    """What one step did: its loss terms, and the items that it encoded on this worker (the unit of equal compute).

    An item counts once, also where gradient caching encodes it twice.
    """

    terms: Mapping[str, Tensor]
    images: int
    texts: int

    @property
    def losses(self) -> dict[str, float]:
        """The terms as numbers; this waits for the step's end on a GPU."""
        return {name: float(value) for name, value in self.terms.items()}


class DualEncoder(nn.Module):
    """Both towers behind one forward, so that DDP sees one call a step."""

    def __init__(self, model: nn.Module, compile: bool = False) -> None:
        super().__init__()
        self.model = model
        network: Any = model
        # The functions are compiled, not the modules: weights keep their names, and validation stays as it is.
        self._image, self._text = (
            compiled(tower) if compile else tower for tower in (network.encode_image, network.encode_text)
        )

    def forward(self, pixels: Tensor | None, tokens: Tensor | None) -> tuple[Tensor | None, Tensor | None, Tensor]:
        """Unit features `[N, D]`, `[M, D]` and the logit scale; None for no pixels, and for no tokens."""
        model: Any = self.model
        return (
            None if pixels is None else self._image(pixels, normalize=True),
            None if tokens is None else self._text(tokens, normalize=True),
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
        if config.micro_batch is not None:
            check_divisible(self.model)
        if config.compile:
            check_compiler(device)
        self.encode = wrap(DualEncoder(self.model, config.compile))
        self.objective = Objective(objective, pairs, teacher, seed)
        self.config = config
        self.device = device
        self.seed = seed
        self.optimizer = torch.optim.AdamW(
            parameter_groups(self.model, config.weight_decay, config.lr, config.layer_decay),
            lr=config.lr,
            betas=config.betas,
            fused=True,
        )
        trained = [name for name, p in self.model.named_parameters() if p.requires_grad and name != "logit_scale"]
        self._trains_image = any(name.startswith(IMAGE_TOWER) for name in trained)
        self._trains_text = not all(name.startswith(IMAGE_TOWER) for name in trained)

    def step(self, number: int, batch: Batch, pixels: Tensor, tokens: Tensor) -> StepReport:
        """One optimiser step on normalised `pixels [N, 3, H, W]` and `tokens [M, L]` of the batch's items."""
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(number, self.config) * group["scale"]
        # The step's own, so that a resumed run draws what an undisturbed one does.
        torch.manual_seed(draw_seed(self.seed, DROPPED, number, rank()))
        self.optimizer.zero_grad(set_to_none=True)
        losses: dict[str, Tensor] = {}

        def loss(images: Tensor, texts: Tensor, scale: Tensor) -> Tensor:
            losses.update(self.objective(Encoded(number, batch, images, texts, scale.reshape(()))))
            # Nothing is unreached: DDP waits for a gradient of each parameter, also of those that no term takes.
            return torch.stack(list(losses.values())).sum() + 0.0 * (images.sum() + texts.sum() + scale.sum())

        parts = self._parts(pixels, tokens)
        backward(parts, loss, encoder=self.encode, device=self.device, graphs=self.config.compile)
        if self.config.grad_clip:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.config.grad_clip)
        self.optimizer.step()
        clamp_logit_scale_(self.model.logit_scale)  # type: ignore[arg-type]
        report = {name: value.detach() for name, value in losses.items()}
        return StepReport(report, len(batch.images), len(batch.captions))

    def _parts(self, pixels: Tensor, tokens: Tensor) -> list[Part]:
        size = self.config.micro_batch or max(len(pixels), len(tokens))
        slices = split((len(pixels), len(tokens)), size)
        return [
            partial(self._encode, pixels[own], tokens[said], number + 1 == len(slices))
            for number, (own, said) in enumerate(slices)
        ]

    def _encode(
        self, pixels: Tensor, tokens: Tensor, last: bool, again: bool
    ) -> tuple[Tensor | None, Tensor | None, Tensor]:
        """Features of a part in float32, and the logit scale `[1]` from the last part, `[0]` from the others."""
        seen = pixels.to(self.device) if len(pixels) and (self._trains_image or not again) else None
        read = tokens.to(self.device) if len(tokens) and (self._trains_text or not again) else None
        with torch.autocast(self.device, torch.bfloat16, enabled=self.config.precision == "bf16"):
            images, texts, scale = self.encode(seen, read)
        return (
            None if images is None else images.float(),
            None if texts is None else texts.float(),
            scale.float().expand(int(last)),
        )
