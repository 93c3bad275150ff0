"""Rows of tables to records: Parquet, Arrow and metadata files differ only in how their batches are read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from repair_ray.data.files import FolderListing
from repair_ray.data.readers.base import ReadOptions
from repair_ray.data.readers.join import RowJoiner
from repair_ray.data.readers.parquet_columns import Columns, choose_columns, is_text
from repair_ray.data.readers.roots import located
from repair_ray.data.records import (
    ImageRef,
    InlineImage,
    Item,
    Problem,
    Record,
    canonical_split,
    clean_captions,
)

_ID_ROWS = 65_536


@dataclass(frozen=True)
class TableSource:
    """How a kind of file is read: its schema, and its batches with these columns and at most so many rows.

    Both raise DataError for a file that cannot be read.
    """

    schema: Callable[[str], pa.Schema]
    batches: Callable[[str, list[str], int], Iterator[pa.RecordBatch]]

    def rows(self, file: str, names: list[str], batch_rows: int) -> Iterator[dict[str, Any]]:
        for batch in self.batches(file, names, batch_rows):
            yield from batch.to_pylist()


def read_tables(path: str, files: list[str], options: ReadOptions, source: TableSource) -> Iterator[Item]:
    """Stream rows batch by batch; never a whole file.

    Rows that repeat an id (one caption a row) become one record, yielded at the last of them; until then its
    picture is held, so keep such rows together. Where they show different pictures or name different splits, the id
    is one Problem. Without an id column the id is the image's path, or for bytes the name that comes with
    them, the first time that it comes, and else file:row. Problems: no_image,
    no_caption, missing_image, path_escapes_root, ambiguous_id.
    """
    chosen = [(file, choose_columns(source.schema(file), options, file)) for file in files]
    joiner = RowJoiner(_repeated_ids(chosen, source))
    rows = _Rows(path, options)
    for file, columns in chosen:
        for index, row in enumerate(source.rows(file, columns.names(), options.batch_rows)):
            image_id = rows.image_id(row, columns, file, index)
            yield from joiner.join(image_id, rows.item(image_id, row, columns, f"{file}:{index}"))


class _Rows:
    """Turns one row (a dict of Python values) into a record or a problem."""

    def __init__(self, path: str, options: ReadOptions) -> None:
        self.path = path
        self.options = options
        self.listing = FolderListing()
        self._named: set[str] = set()

    def image_id(self, row: dict[str, Any], columns: Columns, file: str, index: int) -> str:
        given = row[columns.id] if columns.id else row[columns.image]
        if isinstance(given, str | int) and given != "":
            return str(given)
        name = given.get("path") if isinstance(given, dict) and given.get("bytes") else None
        # Names of bytes say little: many files call each of their pictures "image.jpg".
        if name and name not in self._named:
            self._named.add(name)
            return str(name)
        folder = self.path.rstrip("/") + "/"
        below = file.removeprefix(folder) if file.startswith(folder) else file.rpartition("/")[2]
        return f"{below}:{index}"

    def item(self, image_id: str, row: dict[str, Any], columns: Columns, source: str) -> Item:
        captions = clean_captions([text for name in columns.captions for text in _as_list(row[name])])
        if not captions:
            return Problem(source, "no_caption", f"nothing in {', '.join(columns.captions)}")
        image = self._image(row[columns.image], source)
        if isinstance(image, Problem):
            return image
        group = row[columns.group] if columns.group else None
        split = canonical_split(row[columns.split]) if columns.split else None
        return Record(image_id, image, captions, split, None if group is None else str(group), source)

    def _image(self, value: Any, source: str) -> ImageRef | InlineImage | Problem:
        parts = value if isinstance(value, dict) else {"bytes" if isinstance(value, bytes) else "path": value}
        data, name = parts.get("bytes"), parts.get("path")
        if data:
            return InlineImage(data, name or "")
        if not name:
            return Problem(source, "no_image", "neither bytes nor a path in the image column")
        root = self.options.image_root or source.rpartition("/")[0] or "."
        uri = located(self.listing, root, name, source)
        return uri if isinstance(uri, Problem) else ImageRef(uri)


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _repeated_ids(chosen: list[tuple[str, Columns]], source: TableSource) -> dict[str, int]:
    """How often each id comes that comes more than once. Reads the id columns alone."""
    chunks: list[pa.Array] = []
    for file, columns in chosen:
        name = columns.id or columns.image
        if is_text(source.schema(file).field(name).type) or columns.id:
            for batch in source.batches(file, [name], _ID_ROWS):
                chunks.append(pc.cast(batch.column(0), pa.large_string()))
    counted = pa.chunked_array(chunks, pa.large_string()).value_counts()
    often = counted.filter(pc.greater(counted.field("counts"), 1))
    return {row["values"]: row["counts"] for row in often.to_pylist() if row["values"]}
