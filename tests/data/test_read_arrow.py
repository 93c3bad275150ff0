from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from repair_ray.data.readers import read
from repair_ray.data.records import DataError, InlineImage
from tests.data.reading import sort_out

IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


def table(*numbers: int, **more: list[Any]) -> pa.Table:
    images = [{"bytes": b"I%d" % number, "path": None} for number in numbers]
    captions = [[f"c{number}", ""] for number in numbers]
    return pa.table({"image": pa.array(images, IMAGE), "caption": captions, "img_id": list(map(str, numbers)), **more})


def save(folder: Path, *parts: pa.Table, listed: int | None = None) -> str:
    """As `datasets.save_to_disk` does it: streams of record batches, state.json, dataset_info.json."""
    folder.mkdir(parents=True)
    names = [f"data-{i:05d}-of-{len(parts):05d}.arrow" for i in range(max(len(parts), listed or 0))]
    for name, part in zip(names, parts, strict=False):
        with pa.OSFile(str(folder / name), "wb") as file, pa.ipc.new_stream(file, part.schema) as stream:
            stream.write_table(part, max_chunksize=2)
    (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": n} for n in names], "_split": "train"}))
    (folder / "dataset_info.json").write_text(json.dumps({"features": {}}))
    return str(folder)


def test_a_saved_data_set(tmp_path: Path) -> None:
    path = save(tmp_path / "set", table(1, 2, 3), table(4))
    (tmp_path / "set/cache-1234.arrow").write_bytes(b"\xff\xff\xff\xffleft behind by map")
    records, problems = sort_out(read(path, batch_rows=1))
    assert problems == []
    assert [(r.image_id, r.image, r.captions, r.split) for r in records] == [
        (str(i), InlineImage(b"I%d" % i), [f"c{i}"], None) for i in (1, 2, 3, 4)
    ]
    assert records[3].source == f"{path}/data-00001-of-00002.arrow:0"


def test_folders_and_an_inner_column_tell_the_split(tmp_path: Path) -> None:
    save(tmp_path / "set/train", table(1))
    save(tmp_path / "set/validation", table(2))
    save(tmp_path / "set/test", table(3, 4, split=["test", "val"]))
    (tmp_path / "set/dataset_dict.json").write_text('{"splits": ["train", "validation", "test"]}')
    records, _ = sort_out(read(str(tmp_path / "set")))
    assert {r.image_id: r.split for r in records} == {"1": "train", "2": "validation", "3": "test", "4": "validation"}


def test_arrow_files_with_a_footer(tmp_path: Path) -> None:
    with pa.OSFile(str(tmp_path / "a.arrow"), "wb") as file, pa.ipc.new_file(file, table(1).schema) as out:
        out.write_table(table(1, 2, 3), max_chunksize=2)
    assert [r.image_id for r in sort_out(read(str(tmp_path / "a.arrow")))[0]] == ["1", "2", "3"]


def test_a_data_set_that_is_incomplete_or_damaged(tmp_path: Path) -> None:
    path = save(tmp_path / "short", table(1), table(2), listed=3)
    with pytest.raises(DataError, match=r"state\.json names data-00002-of-00002\.arrow, not there"):
        list(read(path))
    path = save(tmp_path / "cut", table(1, 2, 3))
    file = next((tmp_path / "cut").glob("*.arrow"))
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) - 300])
    with pytest.raises(DataError, match=r"damaged|not a readable Arrow file"):
        list(read(path))
    path = save(tmp_path / "picked", table(1))
    (tmp_path / "picked/state.json").write_text('{"_indices_data_files": [{"filename": "indices.arrow"}]}')
    with pytest.raises(DataError, match="save it again"):
        list(read(path))


@pytest.mark.filterwarnings("ignore")
def test_what_datasets_itself_saves(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets", reason="the datasets package is not installed")
    rows = {"image": [b"I1", b"I2", b"I3"], "caption": [["x", "y"], ["z"], ["w"]]}
    made = datasets.Dataset.from_dict(rows).cast_column("image", datasets.Image(decode=False))
    parts = datasets.DatasetDict({"train": made.select([2, 0]), "test": made.select([1])})
    parts.save_to_disk(str(tmp_path / "set"))
    records, problems = sort_out(read(str(tmp_path / "set")))
    assert problems == []
    assert [(r.split, r.image, r.captions) for r in records] == [
        ("test", InlineImage(b"I2"), ["z"]),
        ("train", InlineImage(b"I3"), ["w"]),
        ("train", InlineImage(b"I1"), ["x", "y"]),
    ]
