"""A Ray Dataset written as Parquet comes back through the Parquet reader."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import ray

from repair_ray.data.readers import read
from repair_ray.data.records import DataError, InlineImage, Record
from repair_ray.stages.from_ray import write_parquet
from repair_ray.stages.graph import start_ray

pytestmark = pytest.mark.integration


def test_a_ray_dataset_comes_back(tmp_path: Path) -> None:
    start_ray()
    image = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    table = pa.table(
        {
            "image": pa.array([{"bytes": b"I%d" % i, "path": "p"} for i in range(20)], image),
            "image_id": [f"id{i}" for i in range(20)],
            "captions": [[f"c{i}", "d"] for i in range(20)],
            "split": ["train"] * 15 + ["test"] * 5,
        }
    )
    folder = tmp_path / "out"
    write_parquet(ray.data.from_arrow(table), str(folder), rows_a_group=4)
    records = {r.image_id: r for r in read(str(folder)) if isinstance(r, Record)}
    assert len(records) == 20
    assert records["id7"].image == InlineImage(b"I7", "p")
    assert (records["id7"].captions, records["id19"].split) == (["c7", "d"], "test")
    for file in folder.glob("*.parquet"):
        metadata = pq.read_metadata(file)
        assert all(metadata.row_group(i).num_rows <= 4 for i in range(metadata.num_row_groups))
        assert pq.read_schema(file).field("image").type.field("bytes").type == pa.large_binary()
    with pytest.raises(DataError, match="is not empty"):
        write_parquet(ray.data.from_arrow(table), str(folder))
    with pytest.raises(DataError, match=r"set data\.caption_column"):
        write_parquet(ray.data.from_arrow(table.drop(["captions"])), str(tmp_path / "more"))
