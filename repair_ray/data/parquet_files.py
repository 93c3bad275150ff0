"""Writing pictures and captions as Parquet that `read` takes: in files of a bounded size, in small row groups."""

from __future__ import annotations

import posixpath

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from repair_ray.data.files import filesystem
from repair_ray.data.readers.base import ReadOptions
from repair_ray.data.readers.parquet_columns import choose_columns
from repair_ray.data.records import DataError

# Readers hold a row group at a time: 64 photos of 100 kB are 6 MB.
ROWS_A_GROUP = 64


def wide_schema(schema: pa.Schema) -> pa.Schema:
    """The schema with 64-bit offsets for bytes, also inside image structs: an Arrow `binary` ends at 2 GiB."""
    return pa.schema([field.with_type(_wide(field.type)) for field in schema], metadata=schema.metadata)


def check_columns(
    schema: pa.Schema, what: str, image_column: str | None = None, caption_column: str | None = None
) -> None:
    """Raises DataError where the Parquet reader would not find pictures and captions in this schema."""
    choose_columns(schema, ReadOptions(image_column=image_column, caption_column=caption_column), what)


def check_empty(folder: str) -> None:
    """Raises DataError where there are files in `folder`, which would become part of the data set."""
    where, inner = filesystem(folder)
    if where.get_file_info(fs.FileSelector(inner, allow_not_found=True)):
        raise DataError(f"{folder} is not empty; choose a new folder, since all of its files would be read")


class ParquetFiles:
    """Writes tables as `folder/name-00000.parquet`, ..., a new file once one holds `file_bytes` of data.

    Each `write` is one row group. A file appears under its name when it is complete. Use it in a `with` block.
    """

    def __init__(self, folder: str, name: str, schema: pa.Schema, file_bytes: int) -> None:
        self._where, self._folder = filesystem(folder)
        self._name = name
        self._schema = schema
        self._limit = file_bytes
        self._files = 0
        self._bytes = 0
        self._writer: pq.ParquetWriter | None = None
        self._where.create_dir(self._folder, recursive=True)

    def write(self, table: pa.Table) -> None:
        """Append a table of the schema. Raises OSError (disk full)."""
        if self._writer is None:
            self._writer = pq.ParquetWriter(self._path("."), self._schema, filesystem=self._where)
        self._writer.write_table(table, row_group_size=max(1, len(table)))
        self._bytes += table.nbytes
        if self._bytes >= self._limit:
            self._finish()

    def __enter__(self) -> ParquetFiles:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        if self._writer is None:
            return
        if kind is None:
            self._finish()
            return
        self._writer.close()
        self._where.delete_file(self._path("."))

    def _path(self, prefix: str = "") -> str:
        # A reader leaves out what starts with a dot.
        return posixpath.join(self._folder, f"{prefix}{self._name}-{self._files:05d}.parquet")

    def _finish(self) -> None:
        assert self._writer is not None
        self._writer.close()
        self._where.move(self._path("."), self._path())
        self._writer, self._bytes = None, 0
        self._files += 1


def _wide(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_binary(kind):
        return pa.large_binary()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_wide(field.type)) for field in kind])
    return kind
