"""The retriever's encoder: the towers alone on tensors, then `Encoder` from decoded pictures and texts."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from PIL import Image

from benchmarks.gpu_engines.meter import Meter, Row
from repair_ray.engines.encoder import Encoder
from repair_ray.engines.retriever import RetrieverSpec

TEXT = "two small red squares to the left of a large blue circle"
BATCH = 256  # of `Encoder`


@dataclass(frozen=True)
class Sizes:
    models: tuple[str, ...]
    batches: tuple[int, ...]
    pictures: int  # decoded pictures of one call of Encoder
    picture_px: tuple[int, int]
    repeats: int


FULL = Sizes(("ViT-B-32", "ViT-L-14"), (64, 128, 256, 512, 1024), 256, (640, 480), 10)
QUICK = Sizes(("tiny-64",), (2, 4), 4, (80, 60), 2)


def rows(meter: Meter) -> Iterator[Row]:
    """Images and texts a second, in bf16 with random weights."""
    sizes = QUICK if meter.quick else FULL
    for model in sizes.models:
        encoder = Encoder(RetrieverSpec(model, precision="bf16"), meter.device, batch_size=BATCH)
        yield from _towers(meter, model, encoder, sizes)
        yield from _whole(meter, model, encoder, sizes)


def _towers(meter: Meter, model: str, encoder: Encoder, sizes: Sizes) -> Iterator[Row]:
    towers: Any = encoder.model
    prepare = encoder.preprocess
    pixels = prepare.normalise(prepare.pixels(_picture(sizes.picture_px, 0))[None].to(meter.device)).bfloat16()
    tokens = prepare.tokens([TEXT]).to(meter.device)
    for unit, tower, one in (("images", towers.encode_image, pixels), ("texts", towers.encode_text, tokens)):
        for size in sizes.batches:
            batch = one.expand(size, *one.shape[1:]).contiguous()
            yield meter.row(
                f"{model}, {unit}",
                torch.inference_mode()(partial(tower, batch, normalize=True)),
                items=size,
                unit=unit,
                dtype="bf16",
                shapes={"batch": list(batch.shape)},
                repeats=sizes.repeats,
            )


def _whole(meter: Meter, model: str, encoder: Encoder, sizes: Sizes) -> Iterator[Row]:
    pictures = [_picture(sizes.picture_px, seed) for seed in range(sizes.pictures)]
    texts = [f"{TEXT} {number}" for number in range(16 * sizes.pictures)]
    pixels = {"pixels": list(sizes.picture_px)}
    yield _call(meter, f"{model}, Encoder.encode_images", encoder.encode_images, pictures, "images", pixels)
    yield _call(meter, f"{model}, Encoder.encode_texts", encoder.encode_texts, texts, "texts", {})
    prepare = encoder.preprocess
    alone = f"{model}, of these on the CPU: Preprocess"
    yield _call(meter, f"{alone}.pixels", partial(_each, prepare.pixels), pictures, "images", pixels, "uint8")
    yield _call(meter, f"{alone}.tokens", prepare.tokens, texts, "texts", {}, "int64")


def _call(
    meter: Meter,
    engine: str,
    call: Callable[[list[Any]], Any],
    items: list[Any],
    unit: str,
    shapes: dict[str, Any],
    dtype: str = "bf16",
) -> Row:
    return meter.row(
        engine,
        partial(call, items),
        items=len(items),
        unit=unit,
        dtype=dtype,
        shapes={unit: len(items), **shapes},
        about=lambda result: {"cpus": os.cpu_count(), "threads": torch.get_num_threads()},
        warmup=1,
        repeats=3,
        on_cpu=dtype != "bf16",
    )


def _each(call: Callable[[Any], Any], items: list[Any]) -> list[Any]:
    return [call(item) for item in items]


def _picture(size: tuple[int, int], seed: int) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), np.uint8))
