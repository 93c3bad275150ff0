"""The selection stage's scoring against plain PyTorch and NumPy that do the same, in one process.

Both open the candidates, encode them with the same retriever, take their cosines with the query and with the source,
and choose; ours also checks texts and pictures, keeps every reject with its reason, and makes a table.
"""

from __future__ import annotations

import io
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import open_clip
import pyarrow as pa
import torch
from PIL import Image

from benchmarks.rows import Row
from benchmarks.turns import Settings, apart, in_turns
from repair_ray import tables
from repair_ray.config import DataConfig, SelectionConfig
from repair_ray.engines.encoder import resolve_model
from repair_ray.stages.candidates import DRAFTS
from repair_ray.stages.select import SelectCandidate

MARK = 0.95
OURS, PEER = "selection stage", "torch and NumPy"
CANDIDATES = 3
SELECTION = SelectionConfig(min_gain=-2.0, min_scaffold=-1.0)


@dataclass(frozen=True)
class Sizes:
    model: str
    rows: int  # half of them with edited texts, half with edited pictures
    batch: int
    side: int


FULL = Sizes("ViT-B-32", 64, 32, 512)
QUICK = Sizes("tiny-64", 16, 8, 96)


def rows(settings: Settings) -> Iterator[Row]:
    """Candidates a second."""
    sizes = QUICK if settings.quick else FULL
    torch.set_num_threads(settings.threads)
    folder = settings.folder / "run"
    blocks = drafts(folder, sizes)
    ours, plain = Ours(folder, sizes, blocks), Plain(folder, sizes, blocks)
    sides = {PEER: plain.turn, OURS: ours.turn}
    watched = {name: partial(apart, _first, side, settings.threads) for name, side in ((PEER, plain), (OURS, ours))}
    turns = in_turns(sides, settings.pairs, watched)
    check(ours.made, plain.chosen)
    name = f"select {sizes.model}"
    note = f"{CANDIDATES} candidates a row, {settings.threads} threads; the same are chosen, by the same cosines"
    yield turns.row(name, OURS, PEER, CANDIDATES * sizes.rows, "candidates/s", note, mark=MARK)
    yield turns.memory_row(name, OURS, PEER)


def _first(side: Ours | Plain, threads: int) -> float:
    torch.set_num_threads(threads)
    return side.turn()


def drafts(folder: Path, sizes: Sizes) -> list[pa.Table]:
    """Blocks of drafts with candidates of noise, and vectors of noise to score them by."""
    (folder / "edited").mkdir(parents=True)
    draw = np.random.default_rng(0)
    made = []
    for number in range(sizes.rows):
        direction = ("i2t", "t2i")[number % 2]
        vectors = draw.standard_normal((2, width_of(sizes.model))).astype(np.float32)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        row: dict[str, Any] = {"failure_id": f"{number:06d}", "direction": direction, "kind": tables.EDITED}
        row |= {"query_id": f"q{number}", "candidate_id": f"c{number}", "ground_truth_id": f"g{number}"}
        row |= {"query_vector": vectors[0], "candidate_vector": vectors[1], "query_captions": ["a blue ring"]}
        row |= {"candidate_text": f"the source {number}", "candidates": []}
        for place in range(CANDIDATES):
            candidate: dict[str, Any] = {"status": tables.OK}
            if direction == "i2t":
                candidate["text"] = f"edited text {number} {place}, of {draw.integers(1000)} red squares"
            else:
                candidate["uri"] = f"edited/{number}-{place}.jpg"
                coarse = Image.fromarray(draw.integers(0, 256, (32, 32, 3), np.uint8))
                coarse.resize((sizes.side, sizes.side)).save(folder / candidate["uri"], quality=90)
            row["candidates"].append(candidate)
        made.append(row)
    return [tables.to_table(made[at : at + sizes.batch], DRAFTS) for at in range(0, len(made), sizes.batch)]


def width_of(model: str) -> int:
    """The features' dimension."""
    return int((open_clip.get_model_config(resolve_model(model)) or {})["embed_dim"])


class Ours:
    """The stage, called as Ray Data calls it."""

    def __init__(self, folder: Path, sizes: Sizes, blocks: list[pa.Table]) -> None:
        self.folder, self.sizes, self.blocks = folder, sizes, blocks
        self.stage: SelectCandidate | None = None
        self.made: list[dict[str, Any]] = []

    def turn(self) -> float:
        self.stage = self.stage or SelectCandidate(
            id_column="failure_id",
            schema=tables.EDITS.schema,
            markers=str(self.folder / "markers"),
            poison={},
            arguments={
                "folder": str(self.folder),
                "data": DataConfig(train="none", test="none").model_dump(mode="json"),
                "spec": {"model": self.sizes.model},
                "device": "cpu",
                "batch_size": CANDIDATES * self.sizes.batch,
                "selection": SELECTION.model_dump(mode="json"),
                "seed": 0,
            },
        )
        begun = time.perf_counter()
        found = [self.stage(block) for block in self.blocks]
        seconds = time.perf_counter() - begun
        self.made = pa.concat_tables(found).to_pylist()
        return seconds


class Plain:
    """The same by hand."""

    def __init__(self, folder: Path, sizes: Sizes, blocks: list[pa.Table]) -> None:
        self.folder, self.sizes, self.blocks = folder, sizes, [block.to_pylist() for block in blocks]
        self.engine: tuple[Any, Any, Any] | None = None
        self.chosen: dict[str, tuple[int, float]] = {}

    def turn(self) -> float:
        if self.engine is None:
            torch.manual_seed(0)
            name = resolve_model(self.sizes.model)
            model, _, transform = open_clip.create_model_and_transforms(name)
            self.engine = model.eval(), transform, open_clip.get_tokenizer(name)
        begun = time.perf_counter()
        with torch.inference_mode():
            for block in self.blocks:
                self._block(block)
        return time.perf_counter() - begun

    def _block(self, block: list[dict[str, Any]]) -> None:
        assert self.engine is not None
        model, transform, tokenizer = self.engine
        texts = [row for row in block if row["direction"] == "i2t"]
        shown = [row for row in block if row["direction"] == "t2i"]
        said = model.encode_text(tokenizer([c["text"] for row in texts for c in row["candidates"]]), normalize=True)
        pictures = [self._open(c["uri"]) for row in shown for c in row["candidates"]]
        seen = model.encode_image(torch.stack([transform(picture) for picture in pictures]), normalize=True)
        for rows_, vectors in ((texts, said.numpy()), (shown, seen.numpy())):
            for place, row in enumerate(rows_):
                own = vectors[place * CANDIDATES : (place + 1) * CANDIDATES]
                align = own @ np.asarray(row["query_vector"], np.float32)
                scaffold = own @ np.asarray(row["candidate_vector"], np.float32)
                best = int(np.argmax(SELECTION.alpha * align + (1 - SELECTION.alpha) * scaffold))
                self.chosen[row["failure_id"]] = best, float(align[best])

    def _open(self, uri: str) -> Image.Image:
        with Image.open(io.BytesIO((self.folder / uri).read_bytes())) as picture:
            return picture.convert("RGB")


def check(made: list[dict[str, Any]], chosen: dict[str, tuple[int, float]]) -> None:
    """Both chose the same candidate of each row, by the same cosine."""
    assert len(made) == len(chosen)
    for row in made:
        best, align = chosen[row["failure_id"]]
        picked = row["candidates"][best]
        assert row["status"] == tables.OK, row["reason"]
        same = (row["text"], row["uri"]) == (picked["text"], picked["uri"])
        assert same and abs(row["align"] - align) < 1e-3, row["failure_id"]
