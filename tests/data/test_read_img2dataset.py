from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from repair_ray.data.readers import find_reader, read
from repair_ray.data.records import DataError, ImageRef, InlineImage
from tests.data.reading import sort_out

# key, caption, status, error_message: two that came, one that did not, one without a caption.
ROWS = [
    ("000000000", "a dog", "success", None),
    ("000000001", "a cat", "failed_to_download", "HTTP Error 404: Not Found"),
    ("000000002", "a, bird", "success", None),
    ("000000003", None, "success", None),
]


def table(rows: list[tuple[Any, ...]], **more: Any) -> pa.Table:
    columns = {name: [row[i] for row in rows] for i, name in enumerate(("key", "caption", "status", "error_message"))}
    columns["url"] = [f"http://host/{row[0]}" for row in rows]
    return pa.table({**{name: pa.array(values, pa.string()) for name, values in columns.items()}, **more})


def shard(folder: Path, rows: list[tuple[Any, ...]], number: str = "00000") -> None:
    """A tar, its table and its statistics, as img2dataset writes them."""
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(folder / f"{number}.tar", "w") as tar:
        for key, caption, status, _ in rows:
            if status != "success":
                continue
            described = json.dumps({"caption": caption, "key": key, "status": status, "sha256": "of the original"})
            parts = {"jpg": b"J" + key.encode(), "json": described.encode()}
            if caption is not None:
                parts["txt"] = caption.encode()
            for suffix, data in parts.items():
                info = tarfile.TarInfo(f"{key}.{suffix}")
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
    pq.write_table(table(rows), folder / f"{number}.parquet")
    (folder / f"{number}_stats.json").write_text(json.dumps({"count": len(rows), "successes": 3}))


def test_tars_with_their_failures(tmp_path: Path) -> None:
    shard(tmp_path, ROWS)
    shard(tmp_path, [("000010000", "more", "success", None)], "00001")
    (tmp_path / "00001.parquet").unlink()  # still being written
    records, problems = sort_out(read(str(tmp_path), split="train"))
    assert [(r.image_id, r.captions, r.split) for r in records] == [
        ("000000000.jpg", ["a dog"], "train"),
        ("000000002.jpg", ["a, bird"], "train"),
        ("000010000.jpg", ["more"], "train"),
    ]
    assert isinstance(records[0].image, ImageRef) and records[0].image.uri == str(tmp_path / "00000.tar")
    failed = [p for p in problems if p.reason == "failed_to_download"]
    assert [(p.source, p.detail) for p in failed] == [
        (f"{tmp_path}/00000.parquet:1", "000000001: HTTP Error 404: Not Found (http://host/000000001)")
    ]
    assert [p.reason for p in problems if p not in failed] == ["no_caption"]
    # Its tars alone are plain WebDataset; its tables alone have no pictures.
    assert len(sort_out(read(str(tmp_path / "*.tar")))[0]) == 3
    with pytest.raises(DataError, match=r"no image column recognised"):
        list(read(str(tmp_path / "*.parquet")))


def test_pictures_inside_the_table(tmp_path: Path) -> None:
    pictures = pa.array([b"J0", None, b"J2", b"J3"], pa.binary())
    whole = table(ROWS, jpg=pictures, txt=pa.array([row[1] for row in ROWS], pa.string()))
    pq.write_table(whole, tmp_path / "00000.parquet")
    (tmp_path / "00000_stats.json").write_text("{}")
    records, problems = sort_out(read(str(tmp_path)))
    assert [(r.image_id, r.image, r.captions) for r in records] == [
        ("000000000.jpg", InlineImage(b"J0", "000000000.jpg"), ["a dog"]),
        ("000000002.jpg", InlineImage(b"J2", "000000002.jpg"), ["a, bird"]),
    ]
    assert [p.reason for p in problems] == ["failed_to_download", "no_caption"]


def test_pictures_in_folders(tmp_path: Path) -> None:
    shard(tmp_path, ROWS)
    with tarfile.open(tmp_path / "00000.tar") as tar:
        tar.extractall(tmp_path / "00000", filter="data")
    (tmp_path / "00000.tar").unlink()
    records, problems = sort_out(read(str(tmp_path)))
    assert [(r.image_id, r.captions) for r in records] == [
        ("000000000.jpg", ["a dog"]),
        ("000000002.jpg", ["a, bird"]),
    ]
    assert sorted(p.reason for p in problems) == ["failed_to_download", "no_caption"]


def test_nothing_came(tmp_path: Path) -> None:
    shard(tmp_path, [(f"00000000{i}", "x", "failed_to_download", "timed out") for i in range(3)])
    with pytest.raises(DataError, match=r"\(img2dataset: 00000.parquet and 2 more\): 3 failed_to_download.*timed out"):
        list(read(str(tmp_path)))


def test_tables_of_another_kind_beside_numbered_tars(tmp_path: Path) -> None:
    shard(tmp_path, ROWS[:1])
    pq.write_table(pa.table({"caption": ["x"]}), tmp_path / "00000.parquet")
    with pytest.raises(DataError, match=r"not a table of img2dataset: no column 'key'"):
        list(read(str(tmp_path)))


def test_clip_retrieval_names_pictures_below_a_root(tmp_path: Path) -> None:
    for name in ("img_emb", "text_emb", "metadata"):
        (tmp_path / "out" / name).mkdir(parents=True)
        np.save(tmp_path / "out" / name / f"{name}_0.npy", np.zeros((2, 4), np.float16))
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos/a.jpg").write_bytes(b"x")
    for number in (2, 10):
        paths = [str(tmp_path / "photos/a.jpg"), f"absent-{number}.jpg"] if number == 2 else [f"absent-{number}.jpg"]
        pq.write_table(
            pa.table({"image_path": paths, "caption": ["x"] * len(paths)}),
            tmp_path / "out/metadata" / f"metadata_{number}.parquet",
        )
    (tmp_path / "out/metadata/metadata_0.npy").unlink()
    reader, files = find_reader(str(tmp_path / "out"))
    assert reader.name == "clip_retrieval"
    assert [file.rpartition("_")[2] for file in files] == ["2.parquet", "10.parquet"]
    with pytest.raises(DataError, match=r"holds no pictures: set data\.image_root"):
        list(read(str(tmp_path / "out")))
    records, problems = sort_out(read(str(tmp_path / "out"), image_root=str(tmp_path / "photos")))
    assert [(r.image, r.captions) for r in records] == [(ImageRef(str(tmp_path / "photos/a.jpg")), ["x"])]
    assert [p.reason for p in problems] == ["missing_image", "missing_image"]
