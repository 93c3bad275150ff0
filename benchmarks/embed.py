"""The embed stage against a plain PyTorch loop: encoded JPEGs in, unit vectors out, the same model of random weights.

Ours is counted from the begin of the first batch in the actor to the end of the last one, the plain loop from its first
picture: start-up is left out of the rates and told apart. Both make the same vectors.
"""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import open_clip
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

from benchmarks.clocked import CLOCK, ClockedEmbed, gap, read_batches, replaced, window
from benchmarks.rows import Row
from benchmarks.turns import Settings, Work, apart, in_turns, rounded
from repair_ray import tables
from repair_ray.config import parse_config
from repair_ray.engines.encoder import resolve_model
from repair_ray.engines.retriever import RetrieverSpec
from repair_ray.run import IMAGES, Recipe, Run
from repair_ray.stages import embed as stage
from repair_ray.stages.graph import start_ray
from repair_ray.stages.vectors import read_embeddings

RATE_MARK, GAP_MARK = 0.95, 0.02
OURS = "embed stage"


@dataclass(frozen=True)
class Sizes:
    model: str
    pictures: int
    side: int
    batch: int


FULL = Sizes("ViT-B-32", 384, 512, 32)
QUICK = Sizes("tiny-64", 48, 96, 8)


def rows(settings: Settings) -> Iterator[Row]:
    """Rate against a loop whose `DataLoader` has no worker, and one; and the time between two batches."""
    sizes = QUICK if settings.quick else FULL
    run = make_run(settings.folder / "run", sizes)
    start_ray()
    ours, plain = Ours(run, sizes, settings.threads), Plain(run.folder, sizes, settings.threads)
    none, one = "torch, DataLoader", "torch, DataLoader of 1 worker"
    turns = in_turns({none: plain.with_workers(0), one: plain.with_workers(1), OURS: ours.turn}, settings.pairs)
    ours.check(plain.vectors)
    name = f"embed {sizes.model}"
    starts = f"start-up {statistics.median(ours.starts):.1f} s, of the loop {statistics.median(plain.starts):.1f} s"
    note = f"JPEGs of {sizes.side} px, batches of {sizes.batch}, {settings.threads} threads; equal vectors; {starts}"
    for peer in (none, one):
        yield turns.row(
            name + (", loader of 1 worker" if peer == one else ""),
            OURS,
            peer,
            sizes.pictures,
            "images/s",
            note,
            mark=RATE_MARK,
        )
    yield turns.memory_row(name, OURS, none)
    share = statistics.median(ours.gaps)
    yield {
        "name": f"{name}, between batches",
        "ours": rounded(100 * share),
        "peer": 100 * GAP_MARK,
        "peer_name": "mark",
        "ratio": round(GAP_MARK / share, 3),
        "unit": "% of the window",
        "n": len(ours.gaps),
        "note": f"the actor has no batch at work; {100 * min(ours.gaps):.2f} to {100 * max(ours.gaps):.2f} %",
    }


class Ours:
    """The embed stage of a run, again and again, on one actor with all threads."""

    def __init__(self, run: Run, sizes: Sizes, threads: int) -> None:
        self.run, self.threads = run, threads
        self.spec = RetrieverSpec(sizes.model)
        self.config = parse_config(
            {
                "data": {"train": "none", "test": "none"},
                "retriever": {"model": sizes.model, "batch_size": sizes.batch},
                "pool": {"num_cpus": threads, "rows_per_block": sizes.batch},
            }
        )
        self.items = stage.items_of(run, tables.IMAGE, ("train",))
        self.starts: list[float] = []
        self.gaps: list[float] = []
        self.turns = 0

    def turn(self) -> float:
        """Embed all pictures into a table of its own; returns the window's seconds."""
        self.turns += 1
        shutil.rmtree(self.run.folder / CLOCK, ignore_errors=True)
        called = time.time()
        with replaced(stage, EmbedItems=ClockedEmbed):
            stage.embed_items(
                self.run, self.config, self.product, self.spec, {"turn": self.turns}, (IMAGES,), lambda: self.items
            )
        batches = read_batches(self.run.folder)
        assert {batch.threads for batch in batches} == {self.threads}, "the actor has other threads than the loop"
        self.starts.append(batches[0].begun - called)
        self.gaps.append(gap(batches))
        return window(batches)

    @property
    def product(self) -> str:
        """The table of the last turn."""
        return f"embeddings-{self.turns}"

    def check(self, expected: np.ndarray) -> None:
        """Compare the last turn's vectors, which come by id, with those of the loop, in the same order."""
        found = read_embeddings(self.run, self.product, tables.IMAGE, "train")
        assert found.features.shape == expected.shape and found.ids == sorted(found.ids)
        difference = float(np.abs(found.features - expected).max())
        assert difference < 1e-3, f"the stage's vectors differ from the loop's by {difference:.2g}"


class Pictures(Dataset[torch.Tensor]):
    """The pictures of a folder through open_clip's own transform."""

    def __init__(self, paths: list[Path], transform: object) -> None:
        self.paths, self.transform = paths, transform

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, place: int) -> torch.Tensor:
        with Image.open(self.paths[place]) as picture:
            return self.transform(picture.convert("RGB"))  # type: ignore[operator, no-any-return]


class Plain:
    """What one would write without an engine, each turn in a new process."""

    def __init__(self, folder: Path, sizes: Sizes, threads: int) -> None:
        self.paths, self.sizes, self.threads = sorted(folder.glob("pictures/*.jpg")), sizes, threads
        self.starts: list[float] = []
        self.vectors = np.zeros((0, 0), np.float32)

    def with_workers(self, workers: int) -> Work:
        """The loop with so many loader processes beside its own."""
        return lambda: self._turn(workers)

    def _turn(self, workers: int) -> float:
        called = time.time()
        begun, seconds, self.vectors = apart(plain_loop, self.paths, self.sizes, self.threads, workers)
        self.starts.append(begun - called)
        return seconds


def plain_loop(paths: list[Path], sizes: Sizes, threads: int, workers: int) -> tuple[float, float, np.ndarray]:
    """When the loop began, in seconds since 1970, how many seconds it took, and its vectors."""
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    model, _, transform = open_clip.create_model_and_transforms(resolve_model(sizes.model))
    model.eval()
    loader = DataLoader(Pictures(paths, transform), sizes.batch, num_workers=workers, persistent_workers=bool(workers))
    if workers:
        # The start of its processes is start-up, as that of an actor is.
        for _ in loader:
            pass
    begun = time.time()
    with torch.inference_mode():
        vectors = torch.cat([model.encode_image(pixels, normalize=True) for pixels in loader])
    return begun, time.time() - begun, vectors.numpy()


def make_run(folder: Path, sizes: Sizes) -> Run:
    """A run that has nothing but JPEG files and its table of them."""
    run, names = Run(folder), [f"{number:06d}" for number in range(sizes.pictures)]
    (folder / "pictures").mkdir(parents=True)
    uris = [f"pictures/{name}.jpg" for name in names]
    for number, uri in enumerate(uris):
        # Coarse noise, enlarged: files of about the size of a photo's.
        coarse = np.random.default_rng(number).integers(0, 256, (32, 32, 3), np.uint8)
        side = (sizes.side, sizes.side)
        Image.fromarray(coarse).resize(side, Image.Resampling.BICUBIC).save(folder / uri, quality=90)
    columns = {"image_id": names, "group_id": names, "uri": uris}
    columns |= {"split": ["train"] * len(names), "status": [tables.OK] * len(names)}
    run.commit(
        IMAGES, Recipe({"pictures": len(names)}), tables.IMAGES, tables.filled(columns, tables.IMAGES.schema), 0.0
    )
    return run
