from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from repair_ray.data.from_datasets import write_parquet
from repair_ray.data.parquet_files import ParquetFiles, check_empty, wide_schema
from repair_ray.data.readers import read
from repair_ray.data.records import DataError, InlineImage, Record

IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


def test_bytes_have_wide_offsets_and_files_are_bounded(tmp_path: Path) -> None:
    schema = wide_schema(pa.schema([("image", IMAGE), ("jpg", pa.binary()), ("text", pa.string())]))
    wide = pa.struct([("bytes", pa.large_binary()), ("path", pa.string())])
    assert schema == pa.schema([("image", wide), ("jpg", pa.large_binary()), ("text", pa.string())])
    rows = pa.table({"image": [{"bytes": b"x" * 600, "path": "p"}], "jpg": [b"y"], "text": ["t"]}).cast(schema)
    with ParquetFiles(str(tmp_path / "new"), "train", schema, file_bytes=1000) as files:
        for _ in range(5):
            files.write(rows)
    made = sorted((tmp_path / "new").iterdir())
    assert [file.name for file in made] == [f"train-0000{i}.parquet" for i in range(3)]
    assert [pq.read_metadata(file).num_row_groups for file in made] == [2, 2, 1]
    assert pq.read_schema(made[0]).field("image").type == wide
    assert len([r for r in read(str(tmp_path / "new")) if isinstance(r, Record) and r.split == "train"]) == 5


def test_a_failure_leaves_nothing_half_made(tmp_path: Path) -> None:
    schema = pa.schema([("text", pa.string())])
    with pytest.raises(RuntimeError), ParquetFiles(str(tmp_path), "a", schema, 10**6) as files:
        files.write(pa.table({"text": ["x"]}))
        assert [file.name for file in tmp_path.iterdir()] == [".a-00000.parquet"]  # no reader sees it
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []


def test_a_folder_in_use_is_refused(tmp_path: Path) -> None:
    check_empty(str(tmp_path / "absent"))
    check_empty("memory://nothing/here")
    (tmp_path / "old.parquet").touch()
    with pytest.raises(DataError, match="is not empty"):
        check_empty(str(tmp_path))


@pytest.fixture
def datasets() -> Any:
    return pytest.importorskip("datasets", reason="the datasets package is not installed")


@pytest.mark.filterwarnings("ignore")
def test_datasets_come_back_as_they_were(datasets: Any, tmp_path: Path) -> None:
    Image.new("RGB", (3, 2), (255, 0, 0)).save(tmp_path / "red.png")
    stored = (tmp_path / "red.png").read_bytes()
    features = datasets.Features(
        {
            "image": datasets.Image(),
            "caption": datasets.List(datasets.Value("string")),
            "kind": datasets.ClassLabel(names=["a", "b"]),
        }
    )
    # One picture by its path alone, one by its bytes, of which the second comes first by an index.
    rows = {
        "image": [str(tmp_path / "red.png"), {"bytes": b"raw", "path": None}],
        "caption": [["x", "y"], ["z"]],
        "kind": ["a", "b"],
    }
    made = datasets.Dataset.from_dict(rows, features=features).select([1, 0])
    folder = str(tmp_path / "out")
    assert write_parquet(datasets.DatasetDict({"train": made, "holdout": made}), folder, rows_a_group=1) == 4
    (tmp_path / "red.png").unlink()
    records = [r for r in read(folder) if isinstance(r, Record)]
    assert sorted((r.split, r.image.data, r.captions) for r in records if isinstance(r.image, InlineImage)) == sorted(
        [
            (split, data, texts)
            for split in ("train", "holdout")
            for data, texts in ((b"raw", ["z"]), (stored, ["x", "y"]))
        ]
    )
    schema = pq.read_schema(tmp_path / "out/train-00000.parquet")
    assert schema.field("image").type.field("bytes").type == pa.large_binary()
    assert pq.read_metadata(tmp_path / "out/train-00000.parquet").num_row_groups == 2


@pytest.mark.filterwarnings("ignore")
def test_a_data_set_alone_is_still_one_for_the_package(datasets: Any, tmp_path: Path) -> None:
    made = datasets.Dataset.from_dict({"image": [b"raw"], "text": ["x"], "split": ["val"]})
    made = made.cast_column("image", datasets.Image(decode=False))
    write_parquet(made, str(tmp_path / "out"))
    records = [r for r in read(str(tmp_path / "out")) if isinstance(r, Record)]
    assert [(r.split, r.captions) for r in records] == [("validation", ["x"])]
    again = datasets.Dataset.from_parquet(str(tmp_path / "out/data-00000.parquet"), cache_dir=str(tmp_path / "cache"))
    assert again[0]["image"]["bytes"] == b"raw"
    for wrong, message in (
        (made.remove_columns("image"), "set data.image_column"),
        (made.select([]), "has no rows"),
        (datasets.DatasetDict({"a/b": made}), "no file name"),
    ):
        with pytest.raises(DataError, match=message):
            write_parquet(wrong, str(tmp_path / "more"))
