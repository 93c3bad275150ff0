"""The terms of the objective, forward and backward, against the time that the towers take for as many pairs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from benchmarks.gpu_engines.meter import Meter, Row
from repair_ray.engines.encoder import Preprocess, build_model
from repair_ray.engines.retriever import RetrieverSpec
from repair_ray.training.objectives import InfoNCE, LocalGrid, info_nce
from repair_ray.training.pairs import PairSet
from repair_ray.training.trainer import DualEncoder


@dataclass(frozen=True)
class Sizes:
    model: str
    encoded: int  # pairs of the towers' pass
    batches: tuple[int, ...]  # anchors; as many grids
    width: int
    repeats: int


FULL = Sizes("ViT-B-32", 1024, (1024, 4096, 16384), 512, 10)
QUICK = Sizes("tiny-64", 4, (16,), 32, 2)


def rows(meter: Meter) -> Iterator[Row]:
    """Milliseconds of each term, and its share of a step: term / (term + towers), the towers' time by pairs."""
    sizes = QUICK if meter.quick else FULL
    towers = _towers(meter, sizes)
    yield towers
    for batch in sizes.batches:
        for name, pairs, call in _terms(batch, sizes.width, meter.device):
            row = meter.row(
                name,
                call,
                items=batch,
                unit="anchors",
                dtype="fp32",
                shapes={"features": [pairs, sizes.width]},
                repeats=sizes.repeats,
            )
            if row["seconds"] and towers["seconds"]:
                term, encode = row["seconds"]["median"], pairs / towers["per_second"]
                row["facts"] |= {"towers_seconds": encode, "share_of_step": term / (term + encode)}
            yield row


def _towers(meter: Meter, sizes: Sizes) -> Row:
    model = build_model(RetrieverSpec(sizes.model), meter.device).train()
    encode, prepare = DualEncoder(model), Preprocess(model, sizes.model)
    tokens = prepare.tokens(["a red square"] * sizes.encoded).to(meter.device)
    pixels = torch.randn(sizes.encoded, *prepare.pixels(Image.new("RGB", (8, 8))).shape, device=meter.device)

    def call() -> None:
        model.zero_grad(set_to_none=True)
        with torch.autocast(meter.device, torch.bfloat16):
            images, texts, scale = encode(pixels, tokens)
        (images.float().sum() + texts.float().sum() + scale).backward()

    return meter.row(
        f"{sizes.model}, towers forward and backward",
        call,
        items=sizes.encoded,
        unit="pairs",
        dtype="bf16",
        shapes={"pixels": list(pixels.shape), "tokens": list(tokens.shape)},
        repeats=sizes.repeats,
    )


def _terms(batch: int, width: int, device: str) -> Iterator[tuple[str, int, Callable[[], None]]]:
    """Each term by name: pairs of features that it takes, and one forward and backward of it."""
    scale = torch.tensor(14.3, device=device, requires_grad=True)
    images, texts = (_features((batch, width), device, seed) for seed in range(2))
    items = np.arange(batch)
    pairs = PairSet(items, items, items, items, items)
    whole, local = InfoNCE(), LocalGrid()
    yield "info_nce, nothing masked", batch, _pass(lambda: info_nce(images, texts, scale), images, texts)
    yield (
        "InfoNCE, known positives masked",
        batch,
        _pass(
            lambda: whole(images, texts, scale, known=pairs.known, image_items=items, text_items=items), images, texts
        ),
    )
    grid_images, grid_texts = (_features((batch, 3, width), device, seed) for seed in range(2))
    there = torch.ones(batch, 3, dtype=torch.bool, device=device)
    known = torch.eye(3, dtype=torch.bool, device=device).expand(batch, 3, 3)
    yield (
        "LocalGrid",
        3 * batch,
        _pass(lambda: local(grid_images, grid_texts, there, there, scale, known), grid_images, grid_texts),
    )


def _pass(loss: Callable[[], Tensor], *features: Tensor) -> Callable[[], None]:
    def call() -> None:
        for feature in features:
            feature.grad = None
        loss().backward()

    return call


def _features(shape: tuple[int, ...], device: str, seed: int) -> Tensor:
    generator = torch.Generator(device).manual_seed(seed)
    features = torch.randn(*shape, device=device, generator=generator)
    return torch.nn.functional.normalize(features, dim=-1).requires_grad_()
