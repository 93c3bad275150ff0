"""A finished run of twelve pictures on the tiny retriever, with random weights before and after repair."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from repair_ray import tables
from repair_ray.cli import app
from repair_ray.config import parse_config
from repair_ray.data.images import load_rgb, pixel_hash
from repair_ray.data.text import text_key
from repair_ray.engines.encoder import Encoder, build_model, save_config, save_weights
from repair_ray.engines.retriever import RetrieverSpec
from repair_ray.run import Recipe, Run, write_json
from repair_ray.stages.evaluate import evaluate

PICTURES = 12
TEST = 8  # the others are of the validation split
NAMES = [f"COCO_val2014_{100 + n:012d}.jpg" for n in range(PICTURES)]
COLOURS = ["red", "green", "blue", "black", "white", "pink"]


def captions(n: int) -> list[str]:
    """Two captions a picture, three for the first; the last two of the test split share a text."""
    texts = [f"a {COLOURS[n % 6]} square number {n}", f"picture {n} of something {COLOURS[n % 6]}"]
    return texts + ["one more"] * (n == 0) if n not in (TEST - 2, TEST - 1) else [texts[0], "The same."]


def split_of(n: int) -> str:
    return "test" if n < TEST else "validation"


def seen_hash(path: Path) -> str:
    return pixel_hash(load_rgb(path.read_bytes()))


def commit(run: Run, product: str, kind: tables.Table, rows: list[dict[str, Any]], **facts: Any) -> None:
    run.ready(product, Recipe({}))
    run.commit(product, Recipe({}), kind, tables.to_table(rows, kind.schema), 0.0, **facts)


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the pictures, their Karpathy JSON, and the run. Tests only read it."""
    folder = tmp_path_factory.mktemp("measured")
    draw = np.random.default_rng(0)
    for name in NAMES:
        pixels = draw.integers(0, 256, (4, 4, 3), np.uint8)
        Image.fromarray(pixels).resize((64, 64), Image.Resampling.NEAREST).save(folder / name, quality=95)
    sentence = iter(range(500, 600))
    entries = [
        {
            "filename": name,
            "cocoid": 100 + n,
            "split": "test" if n < TEST else "val",
            "sentences": [{"raw": text, "sentid": next(sentence)} for text in captions(n)],
        }
        for n, name in enumerate(NAMES)
    ]
    (folder / "dataset.json").write_text(json.dumps({"images": entries, "dataset": "made"}))
    _make_run(folder)
    return folder


def _make_run(folder: Path) -> None:
    run = Run(folder / "run")
    run.folder.mkdir()
    data = {"path": str(folder / "dataset.json")}
    settings = {"data": data, "retriever": {"model": "tiny-64"}, "base": {}, "evaluation": {"bootstrap": 100}}
    config = parse_config({**settings, "name": "run", "output": str(folder)})
    write_json(run.folder / "config.json", config.model_dump(mode="json"))
    images, texts = [], []
    for n, name in enumerate(NAMES):
        identity = tables.row_id(split_of(n), name)
        common = {"image_id": identity, "group_id": identity, "split": split_of(n), "status": tables.OK}
        images.append(
            {
                **common,
                "uri": str(folder / name),
                "pixel_hash": seen_hash(folder / name),
                "source": f"{data['path']}:{n}",
            }
        )
        texts += [
            {
                **common,
                "caption_id": tables.row_id(identity, position, text),
                "position": position,
                "text": text,
                "text_key": text_key(text),
            }
            for position, text in enumerate(captions(n))
        ]
    commit(run, "data/images", tables.IMAGES, images)
    commit(run, "data/captions", tables.CAPTIONS, texts)
    products = {"base": "round-1/embeddings", "round-1": "round-1/evaluation"}
    for seed, (place, embeddings) in enumerate(products.items()):
        weights = run.path(f"{place}/training") / "model.safetensors"
        weights.parent.mkdir(parents=True)
        model = build_model(RetrieverSpec("tiny-64"), seed=seed)
        save_config(model, "tiny-64", weights.parent)
        save_weights(model, weights)
        run.ready(f"{place}/training", Recipe({}))
        run.finish(f"{place}/training", Recipe({}), 0.0)
        encoder = Encoder(RetrieverSpec("tiny-64", str(weights)))
        vectors = encoder.encode_images([Image.open(folder / name).convert("RGB") for name in NAMES])
        rows = [
            {"item_id": row["image_id"], "kind": "image", "split": row["split"], "vector": vector, "status": "ok"}
            for row, vector in zip(images, vectors, strict=True)
        ]
        rows += [
            {"item_id": row["caption_id"], "kind": "caption", "split": row["split"], "vector": vector, "status": "ok"}
            for row, vector in zip(texts, encoder.encode_texts([row["text"] for row in texts]), strict=True)
        ]
        splits = ["test"] if place == "round-1" else ["validation", "test"]
        recipe = Recipe({"retriever": {"model": "tiny-64", "precision": "fp32"}, "splits": splits})
        run.ready(embeddings, recipe)
        table = tables.to_table(rows, tables.EMBEDDINGS.schema)
        run.commit(embeddings, recipe, tables.EMBEDDINGS, table, 0.0, model="tiny-64", weights=str(weights))
        evaluate(run, config, f"{place}/metrics", embeddings)


@pytest.fixture
def workplace(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy that a test may change, as the working directory."""
    shutil.copytree(made, tmp_path / "copy")
    monkeypatch.chdir(tmp_path / "copy")
    return tmp_path / "copy"


def measure(*arguments: str) -> tuple[str, dict[str, Any]]:
    """Run `repair-ray evaluate ...`; what it printed, as one line, and the figures that it wrote."""
    ended = CliRunner().invoke(app, ["evaluate", *arguments, "--json", "out.json"])
    assert ended.exit_code == 0, ended.output
    found: dict[str, Any] = json.loads(Path("out.json").read_text(), parse_constant=lambda name: pytest.fail(name))
    return " ".join(ended.stdout.split()), found
