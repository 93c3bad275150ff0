"""One optimiser step of `Trainer`, without and with grids, from pixels on the device and from the host."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from PIL import Image

from benchmarks.gpu_engines.meter import Meter, Row
from repair_ray.config import ObjectiveConfig, TrainingConfig
from repair_ray.engines.encoder import Preprocess, build_model
from repair_ray.engines.retriever import RetrieverSpec
from repair_ray.training.batches import BatchPlan
from repair_ray.training.pairs import CorrectedPair, PairSet
from repair_ray.training.trainer import Trainer


@dataclass(frozen=True)
class Sizes:
    model: str
    anchors: int
    repeats: int


FULL = Sizes("ViT-B-32", 512, 10)
QUICK = Sizes("tiny-64", 4, 2)


def rows(meter: Meter) -> Iterator[Row]:
    """Pairs a second: images and texts that a step encodes, one of each a pair."""
    sizes = QUICK if meter.quick else FULL
    config = TrainingConfig(steps=1000, batch_size=sizes.anchors, precision="bf16")
    for name, grids in (("anchors alone", False), ("with grids", True)):
        pairs = pair_set(sizes.anchors, grids)
        model = build_model(RetrieverSpec(sizes.model), meter.device)
        prepare = Preprocess(model, sizes.model)
        trainer = Trainer(model, pairs, config, ObjectiveConfig(), device=meter.device)
        batch = BatchPlan(pairs, sizes.anchors, seed=0).step(0)
        pixels = torch.randn(len(batch.images), *prepare.pixels(Image.new("RGB", (8, 8))).shape)
        tokens = prepare.tokens(["a red square"] * len(batch.captions))
        # The training loop's pixels come from its decoding threads, and so from the host.
        for where in (meter.device, "cpu"):
            yield meter.row(
                f"{sizes.model}, Trainer.step, {name}, inputs on {where}",
                partial(trainer.step, 0, batch, pixels.to(where), tokens.to(where)),
                items=len(batch.images),
                unit="pairs",
                dtype="bf16",
                shapes={"anchors": len(batch.anchors), "pixels": list(pixels.shape), "tokens": list(tokens.shape)},
                repeats=sizes.repeats,
            )


def pair_set(anchors: int, grids: bool) -> PairSet:
    """So many anchors, each of its own group; with grids, each has a corrected pair of both directions."""
    items = np.arange(3 * anchors if grids else anchors)
    own = np.where(items < anchors, items, -1)
    corrected = [
        CorrectedPair(direction, anchor, place * anchors + anchor, place * anchors + anchor)
        for anchor in range(anchors if grids else 0)
        for place, direction in ((1, "i2t"), (2, "t2i"))
    ]
    return PairSet(items, own, items, items, np.arange(anchors), corrected)
