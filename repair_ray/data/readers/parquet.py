"""Parquet as Hugging Face data sets store it: an image struct (or bytes, or a path), and captions in any shape."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from repair_ray.data.files import FolderListing, filesystem, under_root
from repair_ray.data.readers.base import Reader, ReadOptions
from repair_ray.data.readers.join import RowJoiner
from repair_ray.data.readers.parquet_columns import Columns, choose_columns, is_text
from repair_ray.data.records import (
    DataError,
    ImageRef,
    InlineImage,
    Item,
    Problem,
    Record,
    canonical_split,
    clean_captions,
)


def detect(head: bytes) -> bool:
    return head.startswith(b"PAR1")


def read(path: str, files: list[str], options: ReadOptions) -> Iterator[Item]:
    """Stream rows batch by batch; never a whole file.

    Rows that repeat an id (one caption a row) become one record, yielded at the last of them; until then its
    picture is held, so keep such rows together. Where they show different pictures or name different splits, the id
    is one Problem. Without an id column the id is the image's path, or file:row for bytes. Problems: no_image,
    no_caption, missing_image, path_escapes_root, ambiguous_id.
    """
    chosen = [(file, _columns_of(file, options)) for file in files]
    joiner = RowJoiner(_repeated_ids(chosen))
    rows = _Rows(path, options)
    for file, columns in chosen:
        for index, row in enumerate(_iter_rows(file, columns.names(), options.batch_rows)):
            image_id = rows.image_id(row, columns, file, index)
            yield from joiner.join(image_id, rows.item(image_id, row, columns, f"{file}:{index}"))


class _Rows:
    """Turns one row (a dict of Python values) into a record or a problem."""

    def __init__(self, path: str, options: ReadOptions) -> None:
        self.path = path
        self.options = options
        self.listing = FolderListing()

    def image_id(self, row: dict[str, Any], columns: Columns, file: str, index: int) -> str:
        given = row[columns.id] if columns.id else row[columns.image]
        if isinstance(given, str | int) and given != "":
            return str(given)
        folder = self.path.rstrip("/") + "/"
        name = file.removeprefix(folder) if file.startswith(folder) else file.rpartition("/")[2]
        return f"{name}:{index}"

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
        try:
            uri = under_root(root, name)
        except ValueError as error:
            return Problem(source, "path_escapes_root", f"{error}; set data.image_root to a folder that holds it")
        if not self.listing.has(uri):
            return Problem(source, "missing_image", f"no file {uri}")
        return ImageRef(uri)


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _open(file: str) -> pq.ParquetFile:
    where, inner = filesystem(file)
    try:
        return pq.ParquetFile(where.open_input_file(inner), pre_buffer=False)
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"{file} is not a readable Parquet file: {error}") from None


def _columns_of(file: str, options: ReadOptions) -> Columns:
    with _open(file) as opened:
        return choose_columns(opened.schema_arrow, options, file)


def _iter_rows(file: str, names: list[str], batch_rows: int) -> Iterator[dict[str, Any]]:
    with _open(file) as opened:
        try:
            for batch in opened.iter_batches(batch_size=batch_rows, columns=names, use_threads=False):
                yield from batch.to_pylist()
        except (OSError, pa.ArrowException) as error:
            raise DataError(f"{file} is damaged: {error}") from None


def _repeated_ids(chosen: list[tuple[str, Columns]]) -> dict[str, int]:
    """How often each id comes that comes more than once. Reads the id columns alone."""
    chunks: list[pa.Array] = []
    for file, columns in chosen:
        name = columns.id or columns.image
        with _open(file) as opened:
            if is_text(opened.schema_arrow.field(name).type) or columns.id:
                for batch in opened.iter_batches(columns=[name], use_threads=False):
                    chunks.append(pc.cast(batch.column(0), pa.large_string()))
    counted = pa.chunked_array(chunks, pa.large_string()).value_counts()
    often = counted.filter(pc.greater(counted.field("counts"), 1))
    return {row["values"]: row["counts"] for row in often.to_pylist() if row["values"]}


READER = Reader(name="parquet", suffixes=(".parquet",), detect=detect, read=read)
