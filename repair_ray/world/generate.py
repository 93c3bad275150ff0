"""Writes the demo's world: three Parquet files of pictures and captions, full of near misses (ours)."""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from repair_ray.world.captions import captions
from repair_ray.world.render import png_bytes
from repair_ray.world.scene import ATTRIBUTES, CELLS, VALUES, Group, Scene, content, derived_seed, random_group

SPLITS = ("train", "validation", "test")
SCHEMA = pa.schema(
    [
        ("image", pa.struct([("bytes", pa.binary()), ("path", pa.string())])),
        ("captions", pa.list_(pa.string())),
    ]
)
_GROUPS = (1, 2, 3)
_GROUPS_WEIGHTS = (1, 6, 3)
_ROWS_A_GROUP = 1000
_TRIES = 1000


def make_world(folder: Path, train: int, validation: int, test: int, seed: int, distractors: int = 3) -> None:
    """Write train.parquet, validation.parquet and test.parquet to `folder`, with so many scenes each.

    Columns: image struct<bytes: binary, path: string>, captions list<string> (five a scene). The files depend on the
    arguments alone. No content (see `scene.content`) occurs twice in the whole world, and the scenes of a family lie in
    one split. The files appear whole, under their names, only when all of them are written. Raises ValueError for
    sizes below zero and for more scenes than the vocabulary gives.
    """
    sizes = dict(zip(SPLITS, (train, validation, test), strict=True))
    for name, size in {**sizes, "distractors": distractors}.items():
        if size < 0:
            raise ValueError(f"{name} is {size}; give a number of at least 0")
    folder.mkdir(parents=True, exist_ok=True)
    seen: set[tuple[Any, ...]] = set()
    with tempfile.TemporaryDirectory(dir=folder, prefix=".world-") as scratch:
        for split, size in sizes.items():
            scenes = make_scenes(size, derived_seed("world", seed, split), distractors, seen)
            _write_split(Path(scratch) / f"{split}.parquet", scenes, seed)
        for split in SPLITS:
            os.replace(Path(scratch) / f"{split}.parquet", folder / f"{split}.parquet")


def make_scenes(size: int, seed: int, distractors: int, seen: set[tuple[Any, ...]]) -> list[Scene]:
    """Draw `size` scenes in shuffled order whose content is not in `seen`, and add their content to it.

    They come in families of one base and up to `distractors` siblings; see `sibling`. Raises ValueError when no new
    scene is found.
    """
    rng = random.Random(seed)
    scenes: list[Scene] = []
    while len(scenes) < size:
        base = _unseen(partial(random_scene, rng), seen)
        if base is None:
            raise ValueError(f"found only {len(scenes)} of {size} new scenes; ask for a smaller world")
        scenes.append(base)
        for _ in range(min(distractors, size - len(scenes))):
            near = _unseen(partial(sibling, base, rng), seen)
            scenes += [near] if near else []
    rng.shuffle(scenes)
    return scenes


def random_scene(rng: random.Random) -> Scene:
    """Draw a scene of one to three groups, no two of which share both shape and colour."""
    number = rng.choices(_GROUPS, _GROUPS_WEIGHTS)[0]
    while True:
        groups = tuple(random_group(rng, cell) for cell in rng.sample(CELLS, number))
        if _distinct(groups):
            return Scene(groups, rng.getrandbits(32))


def sibling(base: Scene, rng: random.Random) -> Scene:
    """Draw a near miss of `base`: one attribute or count of one group, or one move, is different.

    A move takes one group to a free cell, or two groups to each other's cells. Jitter and background are drawn anew, so
    that the difference is not to be found by comparing pixels.
    """
    while True:
        groups = list(base.groups)
        kind = rng.choice([*ATTRIBUTES, "cell"] if len(groups) > 1 else ATTRIBUTES)
        index = rng.randrange(len(groups))
        if kind == "cell":
            groups = rng.choice(_moves(groups))
        else:
            others = [value for value in VALUES[kind] if value != getattr(groups[index], kind)]
            groups[index] = replace(groups[index], **{kind: rng.choice(others)})
        if _distinct(groups):
            fresh = tuple(replace(group, jitter=rng.getrandbits(32)) for group in groups)
            return Scene(fresh, rng.getrandbits(32))


def _moves(groups: list[Group]) -> list[list[Group]]:
    free = [cell for cell in CELLS if cell not in {group.cell for group in groups}]
    moved = []
    for index, group in enumerate(groups):
        moved += [[*groups[:index], replace(group, cell=cell), *groups[index + 1 :]] for cell in free]
    for i, j in combinations(range(len(groups)), 2):
        swapped = list(groups)
        swapped[i], swapped[j] = replace(groups[i], cell=groups[j].cell), replace(groups[j], cell=groups[i].cell)
        moved.append(swapped)
    return moved


def _distinct(groups: tuple[Group, ...] | list[Group]) -> bool:
    """Two red circles in two groups could be called "two red circles": the world does without."""
    return len({(group.shape, group.colour) for group in groups}) == len(groups)


def _unseen(draw: Callable[[], Scene], seen: set[tuple[Any, ...]]) -> Scene | None:
    for _ in range(_TRIES):
        scene = draw()
        key = content(scene)
        if key not in seen:
            seen.add(key)
            return scene
    return None


def _write_split(path: Path, scenes: list[Scene], seed: int) -> None:
    with pq.ParquetWriter(path, SCHEMA) as writer:
        for start in range(0, len(scenes), _ROWS_A_GROUP):
            rows = list(_rows(scenes[start : start + _ROWS_A_GROUP], seed))
            writer.write_table(pa.Table.from_pylist(rows, SCHEMA))


def _rows(scenes: list[Scene], seed: int) -> Iterator[dict[str, Any]]:
    # A drawn scene has no name; its place in the file is its id.
    for scene in scenes:
        yield {"image": {"bytes": png_bytes(scene), "path": None}, "captions": captions(scene, seed)}
