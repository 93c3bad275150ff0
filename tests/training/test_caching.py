"""Gradient caching: how a batch is split, that dropout is drawn again, what stays in memory, and what is refused."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from repair_ray.config import ObjectiveConfig, TextObjectiveConfig, TextTrainingConfig, TrainingConfig
from repair_ray.engines.encoder import build_model
from repair_ray.engines.retriever import RetrieverSpec
from repair_ray.run import RunError
from repair_ray.training.batches import BatchPlan
from repair_ray.training.caching import split
from repair_ray.training.pairs import PairSet
from repair_ray.training.texts.batches import TextPlan, TextSet
from repair_ray.training.texts.trainer import TextTrainer
from repair_ray.training.trainer import Trainer
from tests.training.ddp_worker import TinyModel


def pairs(count: int) -> PairSet:
    """So many pictures, each with one caption."""
    items = np.arange(count)
    return PairSet(items, items, items, items, anchors=items)


def gradients(model: nn.Module, count: int, **settings: Any) -> dict[str, Tensor]:
    """Of one step on `count` pairs."""
    config = TrainingConfig.model_validate({"steps": 9, "batch_size": count, "grad_clip": None, **settings})
    trainer = Trainer(model, pairs(count), config, ObjectiveConfig(), seed=6)
    batch = BatchPlan(pairs(count), count, 0).step(0)
    draws = torch.Generator().manual_seed(2)
    size = 64 if hasattr(model, "transformer") else 2
    pixels = torch.randn(count, 3, size, size, generator=draws)
    tokens = torch.randint(1, 30, (count, 28 if size == 64 else 5), generator=draws)
    trainer.step(3, batch, pixels, tokens)
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def check_equal(one: dict[str, Tensor], other: dict[str, Tensor], **tolerance: float) -> None:
    assert one.keys() == other.keys() != set()
    for name in one:
        torch.testing.assert_close(one[name], other[name], **(tolerance or {"atol": 1e-6, "rtol": 1e-4}), msg=name)


class TestSplit:
    def test_by_hand(self) -> None:
        found = split((5, 9), 4)
        assert found == [(slice(0, 0), slice(0, 1)), (slice(0, 1), slice(1, 5)), (slice(1, 5), slice(5, 9))]

    @pytest.mark.parametrize("counts", [(1, 40), (40, 1), (7, 7), (8, 16), (0, 3)])
    @pytest.mark.parametrize("size", [1, 4, 50])
    def test_every_item_once_and_in_order(self, counts: tuple[int, int], size: int) -> None:
        found = split(counts, size)
        for kind, count in enumerate(counts):
            items = [item for part in found for item in range(count)[part[kind]]]
            assert items == list(range(count))
            assert all(part[kind].stop - part[kind].start <= size for part in found)
            assert found[-1][kind].stop > found[-1][kind].start or count == 0
        assert len(found) == -(-max(counts) // size)


class TestGradients:
    def test_real_towers(self) -> None:
        one, other = (gradients(build_model(RetrieverSpec("tiny-64")), 7, micro_batch=m) for m in (None, 3))
        check_equal(one, other, atol=2e-6, rtol=1e-3)
        assert one["logit_scale"].abs() > 1e-4

    @pytest.mark.parametrize("frozen", ["image", "text"])
    def test_a_frozen_tower(self, frozen: str) -> None:
        made = [gradients(build_model(RetrieverSpec("tiny-64")), 5, micro_batch=m, freeze=[frozen]) for m in (None, 2)]
        check_equal(*made, atol=2e-6, rtol=1e-3)
        assert not any(name.startswith("visual.") == (frozen == "image") for name in made[1].keys() - {"logit_scale"})

    def test_bfloat16(self) -> None:
        one, other = (gradients(TinyModel(), 8, micro_batch=m, precision="bf16") for m in (None, 4))
        for name in one:
            assert other[name].dtype == torch.float32
            assert (one[name] - other[name]).norm() < 0.02 * one[name].norm(), name

    @pytest.mark.transformers
    def test_low_rank_changes(self) -> None:
        pytest.importorskip("peft")
        made = []
        for size in (None, 2):
            model = build_model(RetrieverSpec("tiny-64"))
            torch.manual_seed(1)  # where the changes start
            made.append(gradients(model, 5, micro_batch=size, lora={"rank": 2}))
        check_equal(*made, atol=2e-6, rtol=1e-3)
        assert all("lora_" in name for name in made[1].keys() - {"logit_scale"})
        assert max(value.abs().max() for name, value in made[1].items() if "lora_B" in name) > 1e-4


class Recorded(TinyModel):
    """Keeps what its dropout has let through, pass by pass."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.drop = nn.Dropout(rate)
        self.kept: list[Tensor] = []

    def encode_image(self, pixels: Tensor, normalize: bool = False) -> Tensor:
        ones = self.drop(torch.ones(len(pixels), 12))
        self.kept.append(ones.detach())
        return super().encode_image(pixels * ones.view(-1, 3, 2, 2), normalize)


class TestDropout:
    def test_both_passes_of_a_part_drop_the_same(self) -> None:
        model = Recorded(0.5)
        gradients(model, 6, micro_batch=2)
        first, again = model.kept[:3], model.kept[3:]
        assert len(again) == 3
        assert all(torch.equal(one, other) for one, other in zip(first, again, strict=True))
        assert not torch.equal(first[0], first[1])

    def test_gradients_are_those_of_the_masks_that_were_drawn(self) -> None:
        """An independent step: the plain one, with the masks of the cached one as factors of the pixels."""
        model = Recorded(0.5)
        cached = gradients(model, 6, micro_batch=2)
        masks = torch.cat(model.kept[:3])

        class Masked(TinyModel):
            def encode_image(self, pixels: Tensor, normalize: bool = False) -> Tensor:
                return super().encode_image(pixels * masks.view(-1, 3, 2, 2), normalize)

        check_equal(gradients(Masked(), 6), cached)

    def test_a_step_draws_the_same_whatever_was_drawn_before(self) -> None:
        torch.manual_seed(11)
        one = gradients(Recorded(0.5), 6)
        torch.manual_seed(12)
        check_equal(one, gradients(Recorded(0.5), 6), atol=0, rtol=0)


class Held:
    """Bytes that autograd keeps for backward passes, but for the weights: now, and at the most."""

    def __init__(self, model: nn.Module) -> None:
        self.now = self.peak = 0
        self.weights = {p.untyped_storage().data_ptr() for p in model.parameters()}

    def keep(self, tensor: Tensor) -> _Kept:
        return _Kept(tensor, self)


class _Kept:
    def __init__(self, tensor: Tensor, held: Held) -> None:
        self.tensor, self.held = tensor, held
        self.size = 0 if tensor.untyped_storage().data_ptr() in held.weights else tensor.nbytes
        held.now += self.size
        held.peak = max(held.peak, held.now)

    def __del__(self) -> None:
        self.held.now -= self.size


def peak(micro_batch: int | None, count: int = 24) -> int:
    model = build_model(RetrieverSpec("tiny-64"))
    held = Held(model)
    with torch.autograd.graph.saved_tensors_hooks(held.keep, lambda kept: kept.tensor):
        gradients(model, count, micro_batch=micro_batch)
    gc.collect()
    assert held.now == 0
    return held.peak


class TestMemory:
    def test_activations_are_those_of_a_part(self) -> None:
        plain, small = peak(None), peak(4)
        # A sixth of the batch, and the loss over all of it.
        assert small < plain / 5
        assert peak(4, count=48) < 1.05 * small


class TestTexts:
    def step(self, micro_batch: int | None) -> dict[str, Tensor]:
        torch.manual_seed(0)
        model = build_model(RetrieverSpec("tiny-64"))
        config = TextTrainingConfig(steps=9, batch_size=7, grad_clip=None, micro_batch=micro_batch)
        objective = TextObjectiveConfig.model_validate(
            {"temperature": 0.5, "positive_mixing": True, "hard_negative_mixing": {"k": 3}}
        )
        trainer = TextTrainer(model, TextSet(["text"] * 7, np.arange(7), np.arange(7)), config, objective, seed=3)
        batch = TextPlan(7, 7, 0).step(2)
        tokens = torch.randint(1, 400, (7, 28), generator=torch.Generator().manual_seed(1))
        trainer.step(2, batch, tokens[batch.items])
        return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}

    def test_gradients_of_both_passes_with_their_dropout(self) -> None:
        check_equal(self.step(None), self.step(3), atol=2e-6, rtol=1e-3)


class Normalised(TinyModel):
    def __init__(self) -> None:
        super().__init__()
        self.visual = nn.Sequential(nn.Flatten(), nn.Linear(12, 16), nn.BatchNorm1d(16), nn.Linear(16, 8))


def test_batch_normalisation_is_refused() -> None:
    with pytest.raises(RunError, match=r"training\.micro_batch: the retriever normalises by batch statistics"):
        Trainer(Normalised(), pairs(4), TrainingConfig(micro_batch=2), ObjectiveConfig())
