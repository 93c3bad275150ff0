"""From a Ray Dataset to Parquet that a run reads."""

from __future__ import annotations

import pyarrow as pa
from ray.data import Dataset

from repair_ray.data.parquet_files import ROWS_A_GROUP, check_columns, check_empty, wide_schema
from repair_ray.data.records import DataError


def write_parquet(
    dataset: Dataset,
    folder: str,
    *,
    image_column: str | None = None,
    caption_column: str | None = None,
    rows_a_group: int = ROWS_A_GROUP,
) -> None:
    """Write a Ray Dataset of encoded pictures and captions into an empty folder, which is then `data.path`.

    The pictures are bytes, or {bytes, path} as Hugging Face has them, or paths; the columns are those that the Parquet
    reader takes (name them, as in data.*). Bytes are `large_binary` and a row group holds `rows_a_group` rows, so that
    no column meets Arrow's 2 GiB. Files come one a block.

    Raises:
        DataError: no such columns (decoded pictures are arrays, which it does not take), a folder that is not empty,
            or no row.
    """
    check_empty(folder)
    schema = dataset.schema()
    if schema is None:
        raise DataError("the data set has no rows")
    found = pa.schema(list(zip(schema.names, schema.types, strict=True)))
    check_columns(found, "the data set", image_column, caption_column)
    wide = dataset.map_batches(_widened, batch_size=rows_a_group, batch_format="pyarrow", zero_copy_batch=True)
    wide.write_parquet(folder, row_group_size=rows_a_group)


def _widened(batch: pa.Table) -> pa.Table:
    return batch.cast(wide_schema(batch.schema))
