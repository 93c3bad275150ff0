"""A benchmark's run of six pictures and three queries, whose experts' features are set by hand."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from PIL import Image

from repair_ray import tables
from repair_ray.config import Config, parse_config
from repair_ray.data.images import load_rgb, pixel_hash
from repair_ray.data.text import text_key
from repair_ray.multimatch.products import GALLERY, QUERIES
from repair_ray.run import Recipe, Run, write_json
from repair_ray.tables import multimatch as benchmark_tables
from repair_ray.tables.base import Table

CAPTIONS = ["a cat", "a cat", "a dog", "a cat", "a bird", "a fish"]
QUERIES_ASKED = ["a cat", "a dog", "a bird"]
# Angles in degrees: who is near whom.
PICTURES_AT = {"one": [0, 5, 40, 80, 60, 120], "two": [90, 10, 20, 100, 110, 170]}
QUERIES_AT = {"one": [0, 42, 118], "two": [14, 170, 108]}
HELD_OUT = "a dog"


def image_id(n: int) -> str:
    return f"image-{n}"


def query_id(text: str) -> str:
    return tables.row_id("query", text_key(text))


def commit(run: Run, product: str, kind: Table, rows: list[dict[str, Any]], **facts: Any) -> None:
    run.ready(product, Recipe({}))
    run.commit(product, Recipe({}), kind, tables.to_table(rows, kind.schema), 0.0, **facts)


def settings(output: Path, **multimatch: Any) -> dict[str, Any]:
    chosen = {
        "queries": {"n": 3, "source": "captions", "min_matches": 1},
        "experts": [
            {"name": "one", "model": "ViT-B-32", "pretrained": "x.pt"},
            {"name": "two", "model": "ViT-B-32", "pretrained": "x.pt", "teacher": True},
        ],
        "candidates": {"top": 2, "outside": 100},
        "verify": {"by": ["groups"]},
        **multimatch,
    }
    return {"name": "bench", "output": str(output), "data": {"path": "none.json"}, "multimatch": chosen}


def make(output: Path, **multimatch: Any) -> tuple[Run, Config]:
    """The run with its data, queries, gallery and experts' features; nothing after these."""
    config = parse_config(settings(output, **multimatch))
    run = Run(config.run_dir)
    run.folder.mkdir(parents=True)
    write_json(run.folder / "config.json", config.model_dump(mode="json"))
    images, captions = [], []
    for n, text in enumerate(CAPTIONS):
        path = output / f"{n}.png"
        Image.new("RGB", (8, 8), (40 * n, 0, 0)).save(path)
        common = {"image_id": image_id(n), "group_id": image_id(n), "split": "test", "status": tables.OK}
        pixels = pixel_hash(load_rgb(path.read_bytes()))
        images.append({**common, "uri": str(path), "pixel_hash": pixels, "name": path.name, "source": f"x:{n}"})
        captions.append(
            {**common, "caption_id": f"caption-{n}", "position": 0, "text": text, "text_key": text_key(text)}
        )
    commit(run, "data/images", tables.IMAGES, images)
    commit(run, "data/captions", tables.CAPTIONS, captions)
    asked = [
        {
            "query_id": query_id(text),
            "text": text,
            "text_key": text_key(text),
            "source": "caption",
            "held_out": text == HELD_OUT,
            "status": tables.OK,
        }
        for text in QUERIES_ASKED
    ]
    commit(run, QUERIES, benchmark_tables.ASKED, asked, wanted=3)
    gallery = [{"image_id": image_id(n), "status": tables.OK} for n in range(6)]
    commit(run, GALLERY, benchmark_tables.GALLERY, gallery, size=6)
    for name in ("one", "two"):
        rows = [_embedding(image_id(n), tables.IMAGE, angle) for n, angle in enumerate(PICTURES_AT[name])]
        rows += [
            _embedding(query_id(text), tables.CAPTION, angle)
            for text, angle in zip(QUERIES_ASKED, QUERIES_AT[name], strict=True)
        ]
        commit(run, f"multimatch/experts/{name}", tables.EMBEDDINGS, rows)
    return run, config


def _embedding(item: str, kind: str, angle: float) -> dict[str, Any]:
    turned = math.radians(angle)
    return {
        "item_id": item,
        "kind": kind,
        "split": "test",
        "vector": [math.cos(turned), math.sin(turned)],
        "status": tables.OK,
    }


@pytest.fixture
def made(tmp_path: Path) -> tuple[Run, Config]:
    return make(tmp_path)


def rows_of(table: pa.Table) -> list[dict[str, Any]]:
    return list(table.to_pylist())
