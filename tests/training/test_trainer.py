"""Schedule, parameter groups, and one optimiser step at a time."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from repair_ray.config import ObjectiveConfig, TrainingConfig
from repair_ray.engines.encoder import build_model
from repair_ray.engines.retriever import RetrieverSpec
from repair_ray.training.batches import Batch, BatchPlan
from repair_ray.training.objectives import grid_sums, info_nce
from repair_ray.training.pairs import CorrectedPair, PairSet
from repair_ray.training.trainer import Trainer, learning_rate, parameter_groups


class Lookup(nn.Module):
    """A dual encoder whose features are its parameters: item i's pixels and tokens hold the number i."""

    def __init__(self, items: int = 9, width: int = 6) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.images = nn.Parameter(torch.randn(items, width))
        self.texts = nn.Parameter(torch.randn(items, width))
        self.logit_scale = nn.Parameter(torch.tensor(math.log(10.0)))

    def encode_image(self, pixels: Tensor, normalize: bool = False) -> Tensor:
        return nn.functional.normalize(self.images[pixels.long().flatten(1)[:, 0]], dim=-1)

    def encode_text(self, tokens: Tensor, normalize: bool = False) -> Tensor:
        return nn.functional.normalize(self.texts[tokens[:, 0]], dim=-1)


def pair_set() -> PairSet:
    """Anchors 0..4 (image i, caption i); 5 and 6 are edited items of both kinds."""
    return PairSet(
        image_group=np.array([0, 1, 2, 3, 0, 2, 1]),  # images 0 and 4 share a group
        caption_image=np.array([0, 1, 2, 3, 4, -1, -1]),
        caption_group=np.array([0, 1, 2, 3, 0, 3, 2]),
        caption_text=np.arange(7),
        anchors=np.arange(5),
        corrected=[
            CorrectedPair("i2t", 0, 3, 5),  # anchor 0 has both directions
            CorrectedPair("t2i", 0, 5, 2),
            CorrectedPair("i2t", 1, 2, 6),  # anchor 1 has one
            CorrectedPair("t2i", 3, 4, 4, fallback=True),
        ],
    )


def config(**changes: object) -> TrainingConfig:
    return TrainingConfig.model_validate({"steps": 20, "batch_size": 5, "lr": 0.05, "warmup": 0.0, **changes})


def inputs(batch: Batch) -> tuple[Tensor, Tensor]:
    pixels = torch.from_numpy(batch.images).float()[:, None, None, None].expand(-1, 3, 2, 2)
    return pixels, torch.from_numpy(batch.captions)[:, None].expand(-1, 4)


def one_step(objective: ObjectiveConfig, **changes: object) -> tuple[dict[str, float], Lookup]:
    model = Lookup()
    trainer = Trainer(model, pair_set(), config(**changes), objective)
    batch = BatchPlan(pair_set(), 5, 0).step(0)
    report = trainer.step(0, batch, *inputs(batch))
    assert (report.images, report.texts) == (len(batch.images), len(batch.captions))
    return report.losses, model


def unit(model: Lookup, images: list[int], texts: list[int]) -> tuple[Tensor, Tensor]:
    normal = nn.functional.normalize
    return normal(model.images.detach()[images], dim=-1), normal(model.texts.detach()[texts], dim=-1)


def expected_global(images: list[int], texts: list[int]) -> float:
    """InfoNCE of these pairs at the model's start, with known positives listed from the definitions above."""
    known = pair_set().known(np.array(images), np.array(texts))
    return float(info_nce(*unit(Lookup(), images, texts), torch.tensor(10.0), torch.from_numpy(known)))


def expected_local(scale: float) -> float:
    # Grids by hand, as images and captions (-1: absent): anchor 0, anchor 1, and anchor 3 with its fallback.
    grids = [([0, 3, 5], [0, 5, 2]), ([1, 2, -1], [1, 6, -1]), ([3, -1, 4], [3, -1, 4])]
    total, count = 0.0, 0
    for images, texts in grids:
        mask = torch.tensor([[item >= 0 for item in images]])
        features = unit(Lookup(), images, texts)
        known = torch.from_numpy(pair_set().known(np.array(images), np.array(texts)))[None]
        loss, rows = grid_sums(features[0][None], features[1][None], mask, mask, torch.tensor(scale), known)
        total, count = total + float(loss), count + int(rows)
    assert count == 6 + 4 + 4
    return total / count


ANCHORS = [0, 1, 2, 3, 4]
DISPERSED = ([0, 1, 2, 3, 4, 3, 5, 2], [0, 1, 2, 3, 4, 5, 2, 6])


def test_local_placement_adds_grids_to_the_anchors_alone() -> None:
    losses, _ = one_step(ObjectiveConfig(placement="local", local_weight=0.5))
    assert losses["infonce"] == pytest.approx(expected_global(ANCHORS, ANCHORS), rel=1e-5)
    assert losses["local_grid"] == pytest.approx(0.5 * expected_local(10.0), rel=1e-5)


def test_dispersed_placement_puts_repairs_into_the_global_batch() -> None:
    losses, _ = one_step(ObjectiveConfig(placement="dispersed"))
    assert losses == {"infonce": pytest.approx(expected_global(*DISPERSED), rel=1e-5)}


def test_both_placements() -> None:
    losses, _ = one_step(ObjectiveConfig(placement="both"))
    assert losses["infonce"] == pytest.approx(expected_global(*DISPERSED), rel=1e-5)
    assert losses["local_grid"] == pytest.approx(expected_local(10.0), rel=1e-5)


def test_local_scale_of_its_own() -> None:
    losses, _ = one_step(ObjectiveConfig(local_scale=3.0))
    assert losses["local_grid"] == pytest.approx(expected_local(3.0), rel=1e-5)


def test_weight_zero_leaves_the_term_out() -> None:
    losses, _ = one_step(ObjectiveConfig(local_weight=0.0))
    assert set(losses) == {"infonce"}


def test_batch_without_any_grid() -> None:
    pairs = pair_set()
    plain = PairSet(pairs.image_group, pairs.caption_image, pairs.caption_group, pairs.caption_text, pairs.anchors)
    trainer = Trainer(Lookup(), plain, config(), ObjectiveConfig())
    batch = BatchPlan(plain, 5, 0).step(0)
    losses = trainer.step(0, batch, *inputs(batch)).losses
    assert losses["local_grid"] == 0.0
    assert losses["infonce"] == pytest.approx(expected_global(ANCHORS, ANCHORS), rel=1e-5)


def test_steps_bring_the_loss_down_and_keep_the_scale_within_bounds() -> None:
    model = Lookup()
    with torch.no_grad():
        model.logit_scale.fill_(math.log(100))
    trainer = Trainer(model, pair_set(), config(lr=0.1), ObjectiveConfig())
    plan = BatchPlan(pair_set(), 5, 0)
    totals = []
    for step in range(20):
        batch = plan.step(step)
        totals.append(sum(trainer.step(step, batch, *inputs(batch)).losses.values()))
        assert 0 <= model.logit_scale.item() <= math.log(100) + 1e-6
    assert totals[-1] < 0.2 * totals[0]


def test_gradient_clipping() -> None:
    _, free = one_step(ObjectiveConfig(), grad_clip=None)
    _, clipped = one_step(ObjectiveConfig(), grad_clip=0.01)

    def norm(model: Lookup) -> float:
        return math.sqrt(sum(float((p.grad**2).sum()) for p in model.parameters() if p.grad is not None))

    assert norm(free) > 0.02
    assert norm(clipped) == pytest.approx(0.01, rel=1e-3)


def test_bf16_trains_a_real_model_in_float32_weights() -> None:
    model: Any = build_model(RetrieverSpec("tiny-64"))
    trainer = Trainer(model, pair_set(), config(precision="bf16", lr=1e-3), ObjectiveConfig())
    batch = BatchPlan(pair_set(), 5, 0).step(0)
    pixels = torch.randn(len(batch.images), 3, 64, 64, generator=torch.Generator().manual_seed(0))
    tokens = torch.zeros(len(batch.captions), 28, dtype=torch.int64)
    tokens[:, 0], tokens[:, 1], tokens[:, 2] = 49406, torch.from_numpy(batch.captions) + 320, 49407
    before = model.logit_scale.item()
    losses = trainer.step(5, batch, pixels, tokens).losses
    assert all(math.isfinite(value) and value > 0 for value in losses.values())
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    assert all(torch.isfinite(parameter).all() for parameter in model.parameters())
    assert model.logit_scale.item() != before


class TestLearningRate:
    def test_by_hand(self) -> None:
        # 10 steps, warm-up of 2 (0.2): 1/2, 2/2, then half a cosine over the other 8.
        schedule = config(steps=10, warmup=0.2, lr=1.0)
        rates = [learning_rate(step, schedule) for step in range(10)]
        assert rates[:3] == pytest.approx([0.5, 1.0, 1.0])
        assert rates[6] == pytest.approx(0.5)
        assert rates[4] == pytest.approx(0.5 * (1 + math.sqrt(0.5)))
        assert rates[9] == pytest.approx(0.5 * (1 + math.cos(math.pi * 7 / 8)))
        assert all(a > b for a, b in itertools.pairwise(rates[2:]))

    def test_without_warmup_starts_at_full_rate(self) -> None:
        assert learning_rate(0, config(warmup=0.0, lr=0.3)) == pytest.approx(0.3)

    def test_warmup_alone(self) -> None:
        assert [learning_rate(s, config(steps=4, warmup=1.0, lr=1.0)) for s in range(4)] == [0.25, 0.5, 0.75, 1.0]

    def test_a_single_step(self) -> None:
        assert learning_rate(0, config(steps=1, warmup=0.1, lr=1.0)) == 1.0

    def test_the_optimiser_takes_it(self) -> None:
        trainer = Trainer(Lookup(), pair_set(), config(steps=10, warmup=0.2, lr=0.4), ObjectiveConfig())
        batch = BatchPlan(pair_set(), 5, 0).step(6)
        trainer.step(6, batch, *inputs(batch))
        assert [group["lr"] for group in trainer.optimizer.param_groups] == pytest.approx([0.2, 0.2])


def test_parameter_groups_of_a_real_model() -> None:
    model: Any = build_model(RetrieverSpec("tiny-64"))
    frozen = model.visual.conv1.weight
    frozen.requires_grad_(False)
    decayed, plain = parameter_groups(model, 0.25)
    assert (decayed["weight_decay"], plain["weight_decay"]) == (0.25, 0.0)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    with_decay = {names[id(p)] for p in decayed["params"]}
    without = {names[id(p)] for p in plain["params"]}
    assert with_decay | without == {name for name, p in model.named_parameters() if p is not frozen}
    assert not with_decay & without
    assert "logit_scale" in without and "ln_final.weight" in without and "ln_final.bias" in without
    assert not any(name.endswith("bias") for name in with_decay)
    assert "token_embedding.weight" in with_decay and "text_projection" in with_decay


class Sigmoid(Lookup):
    """As SigLIP in open_clip: a bias that belongs to another loss."""

    def __init__(self) -> None:
        super().__init__()
        self.logit_bias = nn.Parameter(torch.tensor(-10.0))


def test_each_parameter_that_wants_a_gradient_gets_one() -> None:
    """DDP waits for ever, or stops at its second step, for one that does not."""
    trainer = Trainer(Sigmoid(), pair_set(), config(grad_clip=None), ObjectiveConfig(placement="both"))
    batch = BatchPlan(pair_set(), 5, 0).step(0)
    trainer.step(0, batch, *inputs(batch))
    wanted = {name for name, p in trainer.model.named_parameters() if p.requires_grad}
    assert wanted == {"images", "texts", "logit_scale"}
    assert {name for name, p in trainer.model.named_parameters() if p.grad is not None} == wanted
