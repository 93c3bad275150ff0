"""One text-only training step at a time, without Ray: SimCSE, with hard-negative mixing."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from repair_ray.config import TextObjectiveConfig, TextTrainingConfig
from repair_ray.engines.dropout import TextDropout
from repair_ray.training.caching import backward, check_divisible, split
from repair_ray.training.objectives import HardNegativeMixing, PositiveMixing, SimCSE
from repair_ray.training.objectives.mixing import draw_seed
from repair_ray.training.parameters import IMAGE_TOWER, UNREACHED, parameter_groups
from repair_ray.training.texts.batches import TextBatch, TextSet
from repair_ray.training.trainer import StepReport, learning_rate

# Streams of draws that must not be the same numbers: what is dropped, and what is mixed.
DROPPED, MIXED = 0, 1


class TextEncoder(nn.Module):
    """The text tower behind one forward, so that DDP sees one call a step."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor) -> Tensor:
        """Unit features `[N, D]`."""
        model: Any = self.model
        return model.encode_text(tokens, normalize=True)


class TextTrainer:
    """Trains the text tower of a dual encoder; its image tower and its logit scale stay as they are.

    Each text is encoded twice, with other dropout; the two passes are each other's positives, the batch's other texts
    the negatives. Equal texts, and texts of one group, are known positives, which nothing pushes apart.
    """

    def __init__(
        self,
        model: nn.Module,
        texts: TextSet,
        config: TextTrainingConfig,
        objective: TextObjectiveConfig,
        seed: int,
        *,
        wrap: Callable[[nn.Module], nn.Module] = lambda module: module,
        device: str = "cpu",
    ) -> None:
        self.model = model.to(device).train()
        for name, parameter in self.model.named_parameters():
            if name.startswith((IMAGE_TOWER, "logit_scale", *UNREACHED)):
                parameter.requires_grad_(False)
        if config.micro_batch is not None:
            check_divisible(self.model)
        self.dropout = TextDropout(self.model, objective.dropout)
        self.encode = wrap(TextEncoder(self.model))
        self.config = config
        self.objective = objective
        self.device = device
        self.optimizer = torch.optim.AdamW(
            parameter_groups(self.model, config.weight_decay, config.lr, config.layer_decay),
            lr=config.lr,
            betas=config.betas,
            fused=True,
        )
        self._texts = texts
        self._seed = seed
        self._terms = _terms(objective, draw_seed(seed, MIXED))
        self._scale = torch.tensor(1 / objective.temperature, device=device)

    def step(self, number: int, batch: TextBatch, tokens: Tensor) -> StepReport:
        """One optimiser step on int64 `tokens [b, L]` of the batch's texts."""
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(number, self.config) * group["scale"]
        self.optimizer.zero_grad(set_to_none=True)
        losses: dict[str, Tensor] = {}

        def loss(one: Tensor, other: Tensor) -> Tensor:
            losses.update(self._losses(number, batch, one, other))
            return torch.stack(list(losses.values())).sum()

        slices = split((len(tokens),), self.config.micro_batch or len(tokens))
        parts = [partial(self._encode, number, batch, tokens, own) for (own,) in slices]
        backward(parts, loss, encoder=self.encode, device=self.device)
        if self.config.grad_clip:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.config.grad_clip)
        self.optimizer.step()
        return StepReport({name: value.detach() for name, value in losses.items()}, 0, len(tokens) * 2)

    def _encode(self, number: int, batch: TextBatch, tokens: Tensor, own: slice, again: bool) -> tuple[Tensor, Tensor]:
        """Both passes over some of the batch's texts: features in float32, with the dropout of their places."""
        place = batch.start + own.start, batch.start + own.stop
        self.dropout.begin(self.dropout_seed(number), *place, batch.total, self.device)
        with torch.autocast(self.device, torch.bfloat16, enabled=self.config.precision == "bf16"):
            features = self.encode(tokens[own].to(self.device).repeat(2, 1))
        one, other = features.float().chunk(2)
        return one, other

    def dropout_seed(self, number: int) -> int:
        """What a step's dropout is drawn from, on every worker."""
        return draw_seed(self._seed, DROPPED, number)

    def _losses(self, number: int, batch: TextBatch, one: Tensor, other: Tensor) -> dict[str, Tensor]:
        items = {"known": self._texts.known, "query_items": batch.items, "positive_items": batch.items}
        losses = {}
        for name, (weight, term) in self._terms.items():
            more = {"step": number} if isinstance(term, HardNegativeMixing) else {}
            losses[name] = weight * term(one, other, self._scale, **items, **more)
        return losses


def _terms(objective: TextObjectiveConfig, seed: int) -> dict[str, tuple[float, nn.Module]]:
    """The terms that count, by name, with their weights; each in one direction, as SimCSE."""
    pm, hnm = objective.positive_mixing, objective.hard_negative_mixing
    found: dict[str, tuple[float, nn.Module]] = {"simcse": (objective.simcse_weight, SimCSE())}
    if pm is not None:
        found["positive_mixing"] = pm.weight, PositiveMixing(pm.margin, pm.mix, both_ways=False)
    if hnm is not None:
        term = HardNegativeMixing(hnm.k, hnm.pairs, hnm.mix, both_ways=False, seed=seed)
        found["hard_negative_mixing"] = hnm.weight, term
    return {name: (weight, term) for name, (weight, term) in found.items() if weight}
