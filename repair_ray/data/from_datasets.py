"""From Hugging Face's `datasets` to Parquet that a run reads, pictures inside."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from repair_ray.data.parquet_files import ROWS_A_GROUP, ParquetFiles, check_columns, check_empty, wide_schema
from repair_ray.data.records import DataError

_NAME = re.compile(r"^\w+$")


def write_parquet(
    dataset: Any,
    folder: str,
    *,
    image_column: str | None = None,
    caption_column: str | None = None,
    rows_a_group: int = ROWS_A_GROUP,
    file_mb: int = 512,
) -> int:
    """Write a `datasets.Dataset` or `DatasetDict` into an empty folder (a path or URI), which is then `data.path`.

    Pictures that the data set only points to are copied into the files. A split of a `DatasetDict` is named in the
    column "split", unless the rows have one of their own, and in its files' names; a `Dataset` alone names none. Bytes
    are `large_binary` and a row group holds `rows_a_group` rows, so that no column meets Arrow's 2 GiB.

    Returns:
        The number of rows written.

    Raises:
        DataError: no columns that the Parquet reader takes for pictures and captions (name them, as in data.*), a
            folder that is not empty, or no row.
        FileNotFoundError: a picture that the data set points to is not there.
    """
    check_empty(folder)
    splits = dict(dataset) if isinstance(dataset, Mapping) else {"": dataset}
    for name, part in splits.items():
        if name and not _NAME.match(name):
            raise DataError(f"the split {name!r} is no file name; rename it")
        check_columns(
            part.features.arrow_schema, f"split {name!r}" if name else "the data set", image_column, caption_column
        )
    rows = 0
    for name, part in splits.items():
        rows += _write(part, folder, name, rows_a_group, file_mb * 2**20)
    if not rows:
        raise DataError("the data set has no rows")
    return rows


def _write(dataset: Any, folder: str, split: str, rows_a_group: int, file_bytes: int) -> int:
    features = dataset.features
    schema = features.arrow_schema
    named = split and "split" not in schema.names
    if named:
        # What `datasets` notes of its own columns would not fit any more.
        schema = schema.append(pa.field("split", pa.string())).remove_metadata()
    schema = wide_schema(schema)
    rows = 0
    with ParquetFiles(folder, split or "data", schema, file_bytes) as files:
        for batch in dataset.with_format("arrow").iter(batch_size=rows_a_group):
            columns = {name: _embedded(features[name], batch[name]) for name in features}
            if named:
                columns["split"] = pa.array([split] * len(batch))
            files.write(pa.table({name: columns[name] for name in schema.names}).cast(schema))
            rows += len(batch)
    return rows


def _embedded(feature: Any, column: pa.ChunkedArray) -> pa.Array:
    array = column.combine_chunks()
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks)
    return feature.embed_storage(array) if hasattr(feature, "embed_storage") else array
