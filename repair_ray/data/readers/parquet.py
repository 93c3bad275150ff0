"""Parquet as Hugging Face data sets store it: an image struct (or bytes, or a path), and captions in any shape."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from repair_ray.data.files import filesystem
from repair_ray.data.readers.base import Reader, ReadOptions
from repair_ray.data.readers.table_rows import TableSource, read_tables
from repair_ray.data.records import DataError, Item


def detect(head: bytes) -> bool:
    return head.startswith(b"PAR1")


def read(path: str, files: list[str], options: ReadOptions) -> Iterator[Item]:
    """Records of the rows, as `read_tables` makes them."""
    return read_tables(path, files, options, SOURCE)


def _open(file: str) -> pq.ParquetFile:
    where, inner = filesystem(file)
    try:
        return pq.ParquetFile(where.open_input_file(inner), pre_buffer=False)
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"{file} is not a readable Parquet file: {error}") from None


def _schema(file: str) -> pa.Schema:
    with _open(file) as opened:
        return opened.schema_arrow


def _batches(file: str, names: list[str], batch_rows: int) -> Iterator[pa.RecordBatch]:
    with _open(file) as opened:
        try:
            yield from opened.iter_batches(batch_size=batch_rows, columns=names, use_threads=False)
        except (OSError, pa.ArrowException) as error:
            raise DataError(f"{file} is damaged: {error}") from None


SOURCE = TableSource(_schema, _batches)
READER = Reader(name="parquet", suffixes=(".parquet",), detect=detect, read=read)
