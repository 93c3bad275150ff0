"""Data in: readers' records become the `images` and `captions` tables; every picture is opened once.

Bytes that lie inside tables go to tar shards, files stay where they are (`data.images`). Opening, checking and hashing
the pictures is a Ray Data graph, since a picture can kill the process that decodes it.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from repair_ray import tables
from repair_ray.config import Config, DataConfig
from repair_ray.data.files import expand, filesystem
from repair_ray.data.images import ImageProblem, pixel_hash
from repair_ray.data.readers import read
from repair_ray.data.records import DataError, InlineImage, Problem, Record
from repair_ray.data.shards import ShardWriter
from repair_ray.data.store import ImageStore
from repair_ray.data.text import text_key
from repair_ray.run import Recipe, Run, RunError
from repair_ray.stages.graph import Progress, Step, quiet, run_graph
from repair_ray.stages.rows import Row, RowStage

IMAGES = "data/images"
CAPTIONS = "data/captions"
SHARDS = "data/shards"
SPLITS = ("train", "validation", "test")
UNKNOWN = "unknown"


def image_store(folder: Path | str, data: DataConfig) -> ImageStore:
    """The store that reads a run's pictures: shards below the run directory, files where the reader found them."""
    return ImageStore(
        str(folder), background=data.background, max_pixels=data.max_pixels, max_bytes=data.max_image_mb * 2**20
    )


class CheckImages(RowStage):
    """Opens each picture: size, pixel hash, or the reason why it cannot be used."""

    def setup(self, folder: str, data: dict[str, Any]) -> None:
        self._store = image_store(folder, DataConfig.model_validate(data))

    def process(self, rows: list[Row]) -> list[Row]:
        return [self._check(row) for row in rows]

    def _check(self, row: Row) -> Row:
        try:
            image = self._store.rgb(row["uri"], row["offset"], row["length"])
        except ImageProblem as problem:
            return self.failed(row, str(problem.reason))
        return {**row, "width": image.width, "height": image.height, "pixel_hash": pixel_hash(image)}


@dataclass
class Gathered:
    """What the readers found: rows of both tables, before any picture was opened."""

    images: list[dict[str, Any]]
    captions: list[dict[str, Any]]


def ingest(
    run: Run, config: Config, data_settings: dict[str, Any], sources: dict[str, str], progress: Progress = quiet
) -> None:
    """Make the `images` and `captions` tables.

    Args:
        data_settings: the recipe's settings (the data section, and a digest of the files behind it).
        sources: path to read for each split.

    Raises:
        DataError: a source is missing, empty, or of no known layout.
        RunError: no usable row.
    """
    recipe = Recipe(data_settings)
    # Not in the folder of a table, which people open as a whole.
    captions_file = run.path(IMAGES).parent / "captions-as-read.parquet"

    def gather_input() -> pa.Table:
        gathered = _gather(run, config, sources)
        captions_file.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(tables.to_table(gathered.captions, tables.CAPTIONS.schema), captions_file)
        return tables.to_table(gathered.images, tables.IMAGES.schema)

    run_graph(
        run,
        IMAGES,
        recipe,
        tables.IMAGES,
        [
            Step(
                CheckImages,
                tables.IMAGES.schema,
                {"folder": str(run.folder), "data": config.data.model_dump(mode="json")},
                config.pool.on_cpu(),
            )
        ],
        gather_input,
        faults=config.faults,
        finish=_group_duplicates,
        progress=progress,
    )
    caption_recipe = Recipe({}, (IMAGES,))
    if not run.ready(CAPTIONS, caption_recipe):
        start = time.monotonic()
        table = _captions_of(pq.read_table(captions_file), run.read(IMAGES))
        if not len(table) or not any(status == tables.OK for status in table["status"].to_pylist()):
            raise RunError(f"no caption has a usable picture; see the reasons in {run.path(IMAGES)}")
        run.commit(CAPTIONS, caption_recipe, tables.CAPTIONS, table, time.monotonic() - start)


def source_digest(path: str) -> str:
    """Names, sizes and times of the files that `path` names, as one hash: a changed file makes the data stale."""
    facts = []
    for file in expand(path):
        where, inner = filesystem(file)
        found = where.get_file_info(inner)
        facts.append((file, found.size, found.mtime_ns))
    return tables.row_id(json.dumps(facts))


def _gather(run: Run, config: Config, sources: dict[str, str]) -> Gathered:
    images: list[dict[str, Any]] = []
    captions: list[dict[str, Any]] = []
    found: Counter[str] = Counter()
    with ShardWriter(str(run.path(SHARDS)), "source", config.data.shard_mb * 2**20, str(run.folder)) as shards:
        for split, item in items_of(config.data, sources):
            if isinstance(item, Problem):
                images.append(_problem_row(item, split))
                continue
            found[split] += 1
            if split not in SPLITS:
                reason = f"split {split!r} is none of {', '.join(SPLITS)}"
                images.append(_problem_row(Problem(item.source, reason, ""), split) | {"status": tables.REJECTED})
            elif found[split] <= (config.data.limit or found[split]):
                images.append(_image_row(item, split, config.data, shards, run.folder))
                captions += _caption_rows(item, images[-1])
    for split in ("train", config.mining.split, config.evaluation.split):
        if not found[split]:
            there = ", ".join(f"{name} ({count})" for name, count in found.most_common())
            raise DataError(
                f"no row of split {split!r}; splits found: {there}. "
                f"Name a path for each split (data.train, data.test), or data.split_column of data.path"
            )
    return Gathered(images, captions)


def items_of(data: DataConfig, sources: dict[str, str]) -> Iterator[tuple[str, Record | Problem]]:
    """Records with their splits: the one that a path was named for, or, of `data.path`, the one that each row names."""
    if data.path is None:
        for split, path in sources.items():
            for item in _read(data, path, split):
                yield split, item
        return
    for item in _read(data, data.path, None):
        yield (UNKNOWN if isinstance(item, Problem) else item.split or UNKNOWN), item


def _read(data: DataConfig, path: str, split: str | None) -> Iterator[Record | Problem]:
    return read(
        path,
        data.format,
        image_root=data.image_root,
        image_column=data.image_column,
        caption_column=data.caption_column,
        group_column=data.group_column,
        split_column=data.split_column,
        id_column=data.id_column,
        split=split,
    )


def _problem_row(problem: Problem, split: str) -> dict[str, Any]:
    identity = tables.row_id("problem", split, problem.source)
    return {
        "image_id": identity,
        "split": split,
        "group_id": identity,
        "source": problem.source,
        "status": tables.ERROR,
        "reason": problem.reason,
    }


def _image_row(record: Record, split: str, data: DataConfig, shards: ShardWriter, folder: Path) -> dict[str, Any]:
    identity = tables.row_id(split, record.image_id)
    image = record.image
    if not isinstance(image, InlineImage) and data.images == "shards":
        store = image_store(folder, data)
        try:
            image = InlineImage(store.bytes(image.uri, image.offset, image.length))
        except ImageProblem as problem:
            return _problem_row(Problem(record.source, problem.reason, problem.detail), split) | {"image_id": identity}
    if isinstance(image, InlineImage):
        member = shards.add(image.data, identity)
        reference = {
            "uri": member.ref().uri,
            "offset": member.ref().offset,
            "length": member.ref().length,
            "sha256": member.ref().sha256,
        }
    else:
        reference = {"uri": image.uri, "offset": image.offset, "length": image.length, "sha256": image.sha256}
    return {
        "image_id": identity,
        "split": split,
        "group_id": tables.row_id("group", split, record.group) if record.group else identity,
        **reference,
        "source": record.source,
        "status": tables.OK,
    }


def _caption_rows(record: Record, image: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "caption_id": tables.row_id(image["image_id"], position, text),
            "image_id": image["image_id"],
            "split": image["split"],
            "group_id": image["group_id"],
            "position": position,
            "text": text,
            "text_key": text_key(text),
            "status": tables.OK,
        }
        for position, text in enumerate(record.captions)
    ]


def _group_duplicates(images: pa.Table) -> pa.Table:
    """Pictures of one split with the same pixels show the same thing: they share a group, and so do their groups."""
    rows = sorted(images.to_pylist(), key=lambda row: row["image_id"])
    parent: dict[str, str] = {}

    def root(group: str) -> str:
        while parent.setdefault(group, group) != group:
            group = parent[group]
        return group

    first: dict[tuple[str, str], str] = {}
    for row in rows:
        if row["pixel_hash"]:
            other = first.setdefault((row["split"], row["pixel_hash"]), row["group_id"])
            parent[root(row["group_id"])] = root(other)
    for row in rows:
        row["group_id"] = root(row["group_id"])
    return tables.to_table(rows, tables.IMAGES.schema)


def _captions_of(captions: pa.Table, images: pa.Table) -> pa.Table:
    picture = {row["image_id"]: row for row in images.select(["image_id", "group_id", "status", "reason"]).to_pylist()}
    rows = captions.to_pylist()
    for row in rows:
        image = picture[row["image_id"]]
        row["group_id"] = image["group_id"]
        if image["status"] != tables.OK:
            row["status"], row["reason"] = image["status"], f"its picture: {image['reason']}"
    return tables.to_table(rows, tables.CAPTIONS.schema)


def sources_of(data: DataConfig, world_folder: Path) -> dict[str, str]:
    """The path to read for each split that the data section names. Raises `DataError` for a missing local path."""
    if data.world is not None:
        return {split: str(world_folder / f"{split}.parquet") for split in SPLITS}
    paths = {split: getattr(data, split) or data.path for split in SPLITS}
    found = {split: path for split, path in paths.items() if path}
    for split, path in found.items():
        bare = not any(mark in path for mark in "*?[{") and "://" not in path
        if bare and not os.path.exists(path):
            key = f"data.{split}" if getattr(data, split) else "data.path"
            raise DataError(f"{key}: there is nothing at {path}")
    return found
