"""Pictures with one short caption each, which is true of many of them: data of dense false negatives, and its truth."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from repair_ray.world.captions import phrase
from repair_ray.world.generate import SCHEMA, SPLITS, make_scenes
from repair_ray.world.render import png_bytes
from repair_ray.world.scene import Group, Scene, derived_seed
from repair_ray.world.truth import describes

SCENES = {"train": 1000, "validation": 200, "test": 1000}
# A query with more pictures than this says too little to be asked.
MOST = 50
ALL = "all"


@dataclass(frozen=True)
class Benchmark:
    """Pictures as encoded bytes, and for each query the places of those that it is true of."""

    pictures: list[bytes]
    queries: dict[str, list[int]]


def world(folder: Path, seed: int) -> Benchmark:
    """Write scenes with one short caption each (`a red circle`), and return the test split with all that is true of it.

    In the folder `ALL` lie the same pictures with all their short captions: what a teacher knows. The scenes are others
    than those of the world of that seed.
    """
    seen: set[tuple[object, ...]] = set()
    scenes: dict[str, list[Scene]] = {}
    for split in SPLITS:
        scenes[split] = make_scenes(SCENES[split], derived_seed("short captions", seed, split), 3, seen)
        rng = random.Random(derived_seed("short captions, said", seed, split))
        pictures = [png_bytes(scene) for scene in scenes[split]]
        known = [[_short(group) for group in scene.groups] for scene in scenes[split]]
        _write(folder, split, pictures, known, rng)
    queries = sorted({_short(group) for scene in scenes["test"] for group in scene.groups})
    matches = {
        query: [place for place, scene in enumerate(scenes["test"]) if describes(query, scene)] for query in queries
    }
    return Benchmark([png_bytes(scene) for scene in scenes["test"]], _asked(matches))


def _short(group: Group) -> str:
    return phrase(group, ("colour",))


def emoji(source: Path, folder: Path, seed: int) -> Benchmark:
    """Write emoji with one keyword each as their caption, and return the test split with all pictures of each keyword.

    The keywords are those of CLDR, as the data's second caption lists them. `ALL` as in `world`.
    """
    pictures: list[bytes] = []
    matches: dict[str, list[int]] = defaultdict(list)
    for split in SPLITS:
        table = pq.read_table(source / f"{split}.parquet", columns=["image", "captions"])
        rng = random.Random(derived_seed("keywords", seed, split))
        found = [(row["image"]["bytes"], keywords(row["captions"])) for row in table.to_pylist()]
        shown, known = [picture for picture, words in found if words], [words for _, words in found if words]
        _write(folder, split, shown, known, rng)
        if split == "test":
            pictures = shown
            for place, words in enumerate(known):
                for word in words:
                    matches[word].append(place)
    return Benchmark(pictures, _asked(matches))


def keywords(captions: list[str]) -> list[str]:
    """The keywords of `name: keyword, keyword, ...`, where the longest caption has this form."""
    longest = max(captions, key=len)
    name = min(captions, key=len)
    if not longest.startswith(f"{name}: "):
        return []
    return sorted({word.strip() for word in longest.removeprefix(f"{name}: ").split(",") if word.strip()})


def _asked(matches: dict[str, list[int]]) -> dict[str, list[int]]:
    return {query: places for query, places in sorted(matches.items()) if 2 <= len(places) <= MOST}


def _write(folder: Path, split: str, pictures: list[bytes], known: list[list[str]], rng: random.Random) -> None:
    """Pictures with one of their captions each; and, in `all`, with each of them."""
    _write_table(
        folder / f"{split}.parquet",
        [(picture, [rng.choice(said)]) for picture, said in zip(pictures, known, strict=True)],
    )
    _write_table(folder / ALL / f"{split}.parquet", list(zip(pictures, known, strict=True)))


def _write_table(path: Path, rows: list[tuple[bytes, list[str]]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    made: Iterator[dict[str, object]] = (
        {"image": {"bytes": picture, "path": None}, "captions": captions} for picture, captions in rows
    )
    table = pa.Table.from_pylist(list(made), SCHEMA)
    # The same table makes the same file, but its time would tell a run that its data was changed.
    if not path.exists():
        pq.write_table(table, path)
