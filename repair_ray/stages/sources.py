"""What the readers find, as rows of both tables, before any picture is opened.

Rows go to files as they come, so that millions of them need little memory.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import pyarrow.parquet as pq

from repair_ray import tables
from repair_ray.config import Config, DataConfig
from repair_ray.data.access import image_store, read_data
from repair_ray.data.files import expand, filesystem
from repair_ray.data.images import ImageProblem
from repair_ray.data.records import DataError, InlineImage, Problem, Record
from repair_ray.data.shards import ShardWriter
from repair_ray.data.text import text_key
from repair_ray.run import Run
from repair_ray.tables import Table

SHARDS = "data/shards"
SPLITS = ("train", "validation", "test")
UNKNOWN = "unknown"
ROWS_AT_A_TIME = 10_000


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


def source_digest(path: str) -> str:
    """Names, sizes and times of the files that `path` names, as one hash: a changed file makes the data stale."""
    facts = []
    for file in expand(path):
        where, inner = filesystem(file)
        found = where.get_file_info(inner)
        facts.append((file, found.size, found.mtime_ns))
    return tables.row_id(json.dumps(facts))


def gather(
    run: Run,
    config: Config,
    sources: dict[str, str],
    images_file: Path,
    captions_file: Path,
    needed: tuple[str, ...] | None = None,
) -> None:
    """Write the rows of every source to two Parquet files; bytes that lie inside tables go to tar shards.

    Args:
        sources: path to read for each split.
        needed: splits that must have a row; None: those that a round of repair needs.

    Raises:
        DataError: a source is missing, empty, or of no known layout, or a split that is needed has no row.
    """
    found: Counter[str] = Counter()
    with (
        ShardWriter(str(run.path(SHARDS)), "source", config.data.shard_mb * 2**20, str(run.folder)) as shards,
        _Rows(images_file, tables.IMAGES) as images,
        _Rows(captions_file, tables.CAPTIONS) as captions,
    ):
        for split, item in items_of(config.data, sources):
            if isinstance(item, Problem):
                images.add(_problem_row(item, split))
                continue
            found[split] += 1
            if split not in SPLITS:
                reason = f"split {split!r} is none of {', '.join(SPLITS)}"
                images.add(_problem_row(Problem(item.source, reason, ""), split) | {"status": tables.REJECTED})
            elif found[split] <= (config.data.limit or found[split]):
                row = _image_row(item, split, config.data, shards, run.folder)
                images.add(row)
                for caption in _caption_rows(item, row):
                    captions.add(caption)
        for split in needed or ("train", config.mining.split, config.evaluation.split):
            if not found[split]:
                there = ", ".join(f"{name} ({count})" for name, count in found.most_common())
                raise DataError(
                    f"no row of split {split!r}; splits found: {there}. "
                    f"Name a path for each split (data.train, data.test), or data.split_column of data.path"
                )


class _Rows:
    """A Parquet file that grows by rows and is there only when all of them are."""

    def __init__(self, path: Path, kind: Table) -> None:
        self._path, self._schema = path, kind.schema
        self._temporary = path.with_suffix(".tmp")
        path.parent.mkdir(parents=True, exist_ok=True)
        self._waiting: list[dict[str, Any]] = []

    def __enter__(self) -> _Rows:
        self._writer = pq.ParquetWriter(self._temporary, self._schema)
        return self

    def add(self, row: dict[str, Any]) -> None:
        self._waiting.append(row)
        if len(self._waiting) == ROWS_AT_A_TIME:
            self._flush()

    def _flush(self) -> None:
        self._writer.write_table(tables.to_table(self._waiting, self._schema))
        self._waiting.clear()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if kind is None:
            self._flush()
        self._writer.close()
        if kind is None:
            os.replace(self._temporary, self._path)
        else:
            self._temporary.unlink()


def items_of(data: DataConfig, sources: dict[str, str]) -> Iterator[tuple[str, Record | Problem]]:
    """Records with their splits: the one that a path was named for, or, of `data.path`, the one that each row names."""
    if data.path is None:
        for split, path in sources.items():
            for item in read_data(data, path, split):
                yield split, item
        return
    for item in read_data(data, data.path, None):
        yield (UNKNOWN if isinstance(item, Problem) else item.split or UNKNOWN), item


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
        "name": record.image_id,
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
