"""A run of a few coloured pictures with captions, as far as its data: no retriever has seen it yet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from repair_ray import tables
from repair_ray.config import Config, parse_config
from repair_ray.data.text import text_key
from repair_ray.run import CAPTIONS, IMAGES, Recipe, Run

COLOURS = {"red": (230, 20, 20), "orange": (230, 130, 20), "blue": (20, 20, 230), "green": (20, 160, 20)}
SHAPES = ("square", "circle", "box")


def config_of(folder: Path, **settings: Any) -> Config:
    """A config of that run, with the tiny retriever and random weights."""
    tree = {
        "name": "run",
        "output": str(folder),
        "data": {"path": str(folder)},
        "retriever": {"model": "tiny-64", "batch_size": 4},
        # Weights are random: what matches what is no question here.
        "negatives": {"alpha": -1.0, "beta": -1.0},
    }
    return parse_config({**tree, **settings})


def make_run(folder: Path) -> Run:
    """Twelve pictures of the training split, with two captions each; the last cannot be read; one of another split."""
    run = Run(folder / "run")
    images: list[dict[str, Any]] = []
    captions: list[dict[str, Any]] = []
    for number, (colour, shape) in enumerate((c, s) for c in COLOURS for s in SHAPES):
        file = folder / f"{colour}-{shape}.png"
        pixels = np.full((64, 64, 3), COLOURS[colour], np.uint8)
        pixels[: 8 * (1 + SHAPES.index(shape))] = 255
        Image.fromarray(pixels).save(file)
        if number == 11:
            file.write_bytes(b"not a picture")
        _add(images, captions, f"i{number:02d}", str(file), [f"a {colour} {shape}", f"The {shape} is {colour}."])
    _add(images, captions, "other", str(folder / "red-box.png"), ["a violet cube"], split="test")
    for product, kind, rows in ((IMAGES, tables.IMAGES, images), (CAPTIONS, tables.CAPTIONS, captions)):
        run.ready(product, Recipe({}))
        run.commit(product, Recipe({}), kind, tables.to_table(rows, kind.schema), 0.0)
    return run


def _add(
    images: list[dict[str, Any]],
    captions: list[dict[str, Any]],
    identity: str,
    uri: str,
    texts: list[str],
    split: str = "train",
) -> None:
    common = {"image_id": identity, "group_id": f"g-{identity}", "split": split, "status": tables.OK}
    images.append({**common, "uri": uri, "source": uri})
    captions += [
        {**common, "caption_id": f"{identity}-{n}", "position": n, "text": text, "text_key": text_key(text)}
        for n, text in enumerate(texts)
    ]
