"""The trainer against loops of plain PyTorch, and against open_clip's own: same model, batches, optimiser.

In one process, on tensors that are ready: what a step costs, without the loading of its data. All sides begin with the
same weights and must end with the same ones.
"""

from __future__ import annotations

import logging
import math
import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor, nn

from benchmarks.gpu_engines.training import pair_set
from benchmarks.rows import Row
from benchmarks.turns import Settings, apart, in_turns
from repair_ray.config import ObjectiveConfig, TrainingConfig
from repair_ray.engines.encoder import Preprocess, build_model
from repair_ray.engines.retriever import RetrieverSpec
from repair_ray.training.batches import Batch, BatchPlan
from repair_ray.training.trainer import Trainer

MARK = 0.95
OURS, PLAIN, OPEN_CLIP = "Trainer", "torch loop", "open_clip_train"
Step = tuple[Batch, Tensor, Tensor]


@dataclass(frozen=True)
class Sizes:
    model: str
    anchors: int
    steps: int


FULL = Sizes("tiny-64", 128, 20)
QUICK = Sizes("tiny-64", 8, 2)
# Distinct batches, which come again and again.
BATCHES = 4


def rows(settings: Settings) -> Iterator[Row]:
    """Steps with the contrastive objective alone, then with the hard pairs beside it."""
    sizes = QUICK if settings.quick else FULL
    torch.set_num_threads(settings.threads)
    logging.disable(logging.INFO)  # open_clip_train tells of each epoch's end
    for name, grids in (("contrastive", False), ("hard pairs", True)):
        config = TrainingConfig(steps=sizes.steps * (settings.pairs + 1), batch_size=sizes.anchors)
        steps = made_steps(sizes, grids)
        sides: dict[str, Side] = {PLAIN: PlainLoop(sizes, config, steps), OURS: Ours(sizes, config, steps, grids)}
        if not grids and find_spec("open_clip_train"):
            sides = {PLAIN: sides[PLAIN], OPEN_CLIP: OpenClip(sizes, config, steps), OURS: sides[OURS]}
        watched = {name: partial(apart, first_turn, side, settings.threads) for name, side in sides.items()}
        turns = in_turns({name: side.turn for name, side in sides.items()}, settings.pairs, watched)
        for peer in (side for side in sides if side != OURS):
            check(sides[OURS], sides[peer])
        row = f"train {sizes.model}, {name}"
        images = sum(len(batch.images) for batch, _, _ in steps) / len(steps)
        note = f"{sizes.anchors} anchors a step, {images:.0f} pictures, {settings.threads} threads; equal weights after"
        for peer in (side for side in sides if side != OURS):
            extra = "" if peer == PLAIN else f", beside {peer}"
            yield turns.row(row + extra, OURS, peer, sizes.steps, "steps/s", note, mark=MARK)
        yield turns.memory_row(row, OURS, PLAIN)


def first_turn(side: Side, threads: int) -> float:
    """A side's first turn, in a process of its own."""
    torch.set_num_threads(threads)
    return side.turn()


def made_steps(sizes: Sizes, grids: bool) -> list[Step]:
    """Batches with random pixels and with tokens of texts of their own."""
    pairs = pair_set(BATCHES * sizes.anchors, grids)
    plan, prepare = (
        BatchPlan(pairs, sizes.anchors, seed=0),
        Preprocess(build_model(RetrieverSpec(sizes.model)), "tiny-64"),
    )
    shape = prepare.pixels(Image.new("RGB", (8, 8))).shape
    made = []
    for number in range(BATCHES):
        batch = plan.step(number)
        draw = torch.Generator().manual_seed(number)
        texts = [f"picture {caption} of a red square" for caption in batch.captions.tolist()]
        made.append((batch, torch.randn(len(batch.images), *shape, generator=draw), prepare.tokens(texts)))
    return made


class Side:
    """One way to train, `sizes.steps` steps a turn; the model is made in the first turn."""

    def __init__(self, sizes: Sizes, config: TrainingConfig, steps: list[Step]) -> None:
        self.sizes, self.config, self.steps = sizes, config, steps
        self.done = 0
        self._model: nn.Module | None = None

    @property
    def model(self) -> nn.Module:
        """All sides draw the same weights."""
        if self._model is None:
            self._model = build_model(RetrieverSpec(self.sizes.model)).train()
        return self._model

    def turn(self) -> float:
        """Seconds of the next steps."""
        self.begin()
        begun = time.perf_counter()
        self.advance(range(self.done, self.done + self.sizes.steps))
        self.done += self.sizes.steps
        return time.perf_counter() - begun

    def begin(self) -> None:
        """What is made once."""
        raise NotImplementedError

    def advance(self, numbers: range) -> None:
        """Take these steps."""
        raise NotImplementedError


class Ours(Side):
    """`Trainer`."""

    def __init__(self, sizes: Sizes, config: TrainingConfig, steps: list[Step], grids: bool) -> None:
        super().__init__(sizes, config, steps)
        self.pairs = pair_set(BATCHES * sizes.anchors, grids)
        self.trainer: Trainer | None = None

    def begin(self) -> None:
        self.trainer = self.trainer or Trainer(self.model, self.pairs, self.config, ObjectiveConfig())

    def advance(self, numbers: range) -> None:
        assert self.trainer is not None
        for number in numbers:
            self.trainer.step(number, *self.steps[number % BATCHES])


class PlainLoop(Side):
    """The loop that one would write for this objective alone."""

    optimizer: torch.optim.Optimizer | None = None

    def begin(self) -> None:
        self.optimizer = self.optimizer or optimizer_of(self.model, self.config)

    def advance(self, numbers: range) -> None:
        assert self.optimizer is not None
        model: Any = self.model
        rate = schedule(self.optimizer, self.config)
        for number in numbers:
            batch, pixels, tokens = self.steps[number % BATCHES]
            rate(number)
            self.optimizer.zero_grad(set_to_none=True)
            images, texts = model.encode_image(pixels, normalize=True), model.encode_text(tokens, normalize=True)
            scale = model.logit_scale.exp()
            pairs = torch.from_numpy(batch.anchors)
            loss = both_ways(scale * images[pairs[:, 0]] @ texts[pairs[:, 1]].T)
            if len(batch.grid_images):
                first, second = torch.from_numpy(batch.grid_images), torch.from_numpy(batch.grid_captions)
                loss = loss + both_ways(scale * images[first] @ texts[second].transpose(1, 2))
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), self.config.grad_clip or math.inf)
            self.optimizer.step()
            with torch.no_grad():
                model.logit_scale.clamp_(0, math.log(100))


class OpenClip(Side):
    """`open_clip_train.train.train_one_epoch`, an epoch a turn."""

    optimizer: torch.optim.Optimizer | None = None

    def begin(self) -> None:
        self.optimizer = self.optimizer or optimizer_of(self.model, self.config)

    def advance(self, numbers: range) -> None:
        from open_clip import ClipLoss
        from open_clip_train.train import train_one_epoch

        assert self.optimizer is not None
        arguments = Namespace(
            device="cpu",
            precision="fp32",
            distill=False,
            accum_freq=1,
            skip_scheduler=False,
            grad_clip_norm=self.config.grad_clip,
            log_every_n_steps=10**9,
            batch_size=self.sizes.anchors,
            rank=0,
            world_size=1,
            wandb=False,
            horovod=False,
        )
        pairs = [self.steps[number % BATCHES][1:] for number in numbers]
        loader = Loader(pairs, len(pairs), len(pairs) * self.sizes.anchors)
        data = {"train": SimpleNamespace(dataloader=loader, set_epoch=lambda epoch: None)}
        # Its step counts from the epoch's first one.
        rate, first = schedule(self.optimizer, self.config), numbers.start
        epoch = first // len(pairs)
        train_one_epoch(self.model, data, ClipLoss(), epoch, self.optimizer, None, rate, None, arguments)


@dataclass
class Loader:
    """A loader as open_clip's loop reads it."""

    batches: Sequence[tuple[Tensor, ...]]
    num_batches: int
    num_samples: int

    def __iter__(self) -> Iterator[tuple[Tensor, ...]]:
        return iter(self.batches)


def both_ways(logits: Tensor) -> Tensor:
    """Cross-entropy of rows and columns, `[..., N, N]`, the diagonal being right; their mean."""
    flat = logits.reshape(-1, logits.shape[-1])
    turned = logits.transpose(-1, -2).reshape(-1, logits.shape[-1])
    right = torch.arange(logits.shape[-1]).repeat(len(flat) // logits.shape[-1])
    return (F.cross_entropy(flat, right) + F.cross_entropy(turned, right)) / 2


def optimizer_of(model: nn.Module, config: TrainingConfig) -> torch.optim.Optimizer:
    """AdamW; gains, biases and the logit scale go without weight decay."""
    plain = [parameter for parameter in model.parameters() if parameter.ndim < 2]
    decayed = [parameter for parameter in model.parameters() if parameter.ndim >= 2]
    groups = [{"params": plain, "weight_decay": 0.0}, {"params": decayed, "weight_decay": config.weight_decay}]
    return torch.optim.AdamW(groups, lr=config.lr, betas=config.betas, fused=True)


def schedule(optimizer: torch.optim.Optimizer, config: TrainingConfig) -> Callable[[int], None]:
    """Linear warm-up, then half a cosine to zero."""
    warmup = max(1, round(config.warmup * config.steps))

    def set_rate(step: int) -> None:
        part = (step - warmup) / max(1, config.steps - warmup)
        rate = (step + 1) / warmup if step < warmup else 0.5 * (1 + math.cos(math.pi * part))
        for group in optimizer.param_groups:
            group["lr"] = config.lr * rate

    return set_rate


def check(ours: Side, peer: Side, tolerance: float = 1e-2) -> None:
    """Both have taken the same steps: no weight differs by more than a share of what training has moved it by."""
    start = build_model(RetrieverSpec(ours.sizes.model)).state_dict()
    other = peer.model.state_dict()
    moved, apart = 0.0, 0.0
    for name, value in ours.model.state_dict().items():
        if value.is_floating_point():
            moved += float((value - start[name]).square().sum())
            apart += float((value - other[name]).square().sum())
    assert moved > 0, "nothing was trained"
    share = math.sqrt(apart / moved)
    assert share < tolerance, f"the two trainings are {share:.1%} of their way apart"
