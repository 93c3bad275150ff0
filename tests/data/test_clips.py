"""Clip features from Parquet and safetensors, captions beside them, and every row that cannot be used."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import save_file

from repair_ray.data.clips import read_clips
from repair_ray.data.records import DataError


def frames(n: int, width: int = 3, value: float = 0.5) -> list[list[float]]:
    return [[value + t + d / 10 for d in range(width)] for t in range(n)]


def write(path: Path, rows: list[dict[str, Any]], kind: pa.DataType | None = None) -> str:
    columns = {name: [row.get(name) for row in rows] for name in rows[0]}
    table = pa.table(
        {
            name: pa.array(values, kind or pa.list_(pa.list_(pa.float64()))) if name == "features" else values
            for name, values in columns.items()
        }
    )
    pq.write_table(table, path)
    return str(path)


def row(identity: str, n: int = 2, split: str | None = "train", caption: Any = "regen", **more: Any) -> dict[str, Any]:
    return {"clip_id": identity, "split": split, "caption": caption, "features": frames(n), **more}


@pytest.mark.parametrize(
    "kind",
    [
        pa.list_(pa.list_(pa.float64())),
        pa.list_(pa.list_(pa.float16())),
        pa.large_list(pa.large_list(pa.float32())),
        pa.list_(pa.list_(pa.float32(), 3)),
    ],
    ids=str,
)
def test_parquet(tmp_path: Path, kind: pa.DataType) -> None:
    write(tmp_path / "a.parquet", [row("a", 2), row("b", 5, "dev", " viel   sonne ")], kind)
    write(tmp_path / "b.parquet", [row("c", 1, "test")], kind)
    found = read_clips(str(tmp_path))
    assert [(clip.clip_id, clip.split, clip.captions) for clip in found.clips] == [
        ("a", "train", ("regen",)),
        ("b", "validation", ("viel sonne",)),
        ("c", "test", ("regen",)),
    ]
    assert found.width == 3 and [clip.features.shape for clip in found.clips] == [(2, 3), (5, 3), (1, 3)]
    assert found.clips[1].features.dtype == np.float32
    np.testing.assert_allclose(found.clips[1].features, frames(5), atol=1e-2)
    assert found.problems == [] and [clip.clip_id for clip in found.of("test")] == ["c"]
    with pytest.raises(DataError, match=r"no clip of split 'dev'; splits found: train \(1\), validation \(1\)"):
        found.of("dev")


def test_captions_may_be_a_list(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", [row("a", caption=["eins", "", "zwei"])])
    assert read_clips(str(tmp_path / "a.parquet")).clips[0].captions == ("eins", "zwei")


def test_rows_that_cannot_be_used_are_counted(tmp_path: Path) -> None:
    rows = [
        row("good"),
        row("good", 3),
        row("empty") | {"features": []},
        row("none") | {"features": None},
        row("nan") | {"features": [[1.0, float("nan"), 0.0]]},
        row("infinite") | {"features": [[1.0, float("inf"), 0.0]]},
        row("ragged") | {"features": [[1.0, 2.0, 3.0], [1.0]]},
        row("gap") | {"features": [[1.0, 2.0, 3.0], None]},
        row("silent", caption="  "),
        row("mute", caption=None),
        row("homeless", split=None),
    ]
    found = read_clips(write(tmp_path / "a.parquet", rows))
    assert [clip.clip_id for clip in found.clips] == ["good"] and len(found.clips[0].features) == 2
    assert found.reasons() == {
        "duplicate_id": 1,
        "no_frames": 2,
        "not_finite": 2,
        "bad_features": 2,
        "no_caption": 2,
        "no_split": 1,
    }
    assert found.problems[0].source == f"{tmp_path / 'a.parquet'}:1"


def test_features_of_two_widths_stop(tmp_path: Path) -> None:
    other = row("b") | {"features": frames(2, 4)}
    with pytest.raises(DataError, match=r"clip 'a' has features of width 3, clip 'b' of width 4"):
        read_clips(write(tmp_path / "a.parquet", [row("a"), other]))


def test_safetensors_with_captions_beside_them(tmp_path: Path) -> None:
    folder = tmp_path / "features"
    (folder / "day").mkdir(parents=True)
    save_file({"x": np.array(frames(2), np.float32)}, folder / "a.safetensors")
    save_file({"x": np.array(frames(4), np.float16)}, folder / "day" / "b.safetensors")
    save_file({"x": np.zeros((2, 3, 4), np.float32)}, folder / "c.safetensors")
    save_file({"x": np.zeros((2, 3), np.float32), "y": np.zeros((2, 3), np.float32)}, folder / "d.safetensors")
    (folder / "e.safetensors").write_bytes(b"no tensor")
    save_file({"x": np.zeros((2, 3), np.float32)}, folder / "f.safetensors")
    lines = [
        "clip_id|split|translation",
        "a|train|Regen, viel",
        "a|train|Regen, viel",
        "a|train|Schauer",
        "day/b|test|x",
    ]
    (tmp_path / "captions.csv").write_text("\n".join([*lines, "gone|train|y", "c|train|z", "d|train|z", "e|train|z"]))
    found = read_clips(str(folder), str(tmp_path / "captions.csv"))
    assert [(clip.clip_id, clip.captions) for clip in found.clips] == [
        ("a", ("Regen, viel", "Schauer")),
        ("day/b", ("x",)),
    ]
    assert found.reasons() == {"bad_features": 3, "no_caption": 1, "no_features": 1}
    with pytest.raises(DataError, match="safetensors hold no captions: name their file"):
        read_clips(str(folder))


@pytest.mark.parametrize("name", ["c.jsonl", "c.parquet", "c.tsv"])
def test_captions_of_each_kind(tmp_path: Path, name: str) -> None:
    write(tmp_path / "a.parquet", [{"clip_id": "a", "features": frames(2)}])
    rows = [{"clip_id": "a", "caption": "regen; stark", "split": "dev"}]
    path = tmp_path / name
    if name.endswith("jsonl"):
        path.write_text("\n".join(map(json.dumps, rows)))
    elif name.endswith("parquet"):
        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        path.write_text("clip_id\tcaption\tsplit\na\tregen; stark\tdev\n")
    (clip,) = read_clips(str(tmp_path / "a.parquet"), str(path)).clips
    assert (clip.split, clip.captions) == ("validation", ("regen; stark",))


def test_other_features_of_the_same_clips(tmp_path: Path) -> None:
    first = read_clips(write(tmp_path / "a.parquet", [row("a"), row("b", 3, "test", "schnee")]))
    write(tmp_path / "other.parquet", [{"clip_id": "b", "features": frames(7, 5)}])
    other = read_clips(str(tmp_path / "other.parquet"), like=first)
    assert [(clip.clip_id, clip.split, clip.captions, clip.features.shape) for clip in other.clips] == [
        ("b", "test", ("schnee",), (7, 5))
    ]
    assert other.reasons() == {"no_features": 1}


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"clip_id": "a", "caption": "x"}], "has no column features or feature or frames; found: clip_id, caption"),
        ([{"clip_id": "a", "features": frames(1)}], "has no column captions or caption"),
        ([{"id": "a", "caption": "x", "features": frames(1)}], "has no column clip_id"),
        ([row("a", split=None)], "holds no clip that can be used: {'no_split': 1}"),
    ],
)
def test_columns_that_are_missing(tmp_path: Path, rows: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(DataError, match=message.replace("{", r"\{").replace("}", r"\}")):
        read_clips(write(tmp_path / "a.parquet", rows))


def test_files_that_are_missing_or_other(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file"):
        read_clips(str(tmp_path / "gone.parquet"))
    (tmp_path / "a.parquet").write_text("no")
    with pytest.raises(DataError, match="as Parquet"):
        read_clips(str(tmp_path / "a.parquet"))
    write(tmp_path / "b.parquet", [{"clip_id": "a", "features": frames(1)}])
    (tmp_path / "c.csv").write_text("clip_id,caption,split\na,x,train\na,y,test\n")
    with pytest.raises(DataError, match="clip 'a' is of split 'train' and of 'test'"):
        read_clips(str(tmp_path / "b.parquet"), str(tmp_path / "c.csv"))
    (tmp_path / "d.csv").write_text("name,caption\na,x\n")
    with pytest.raises(DataError, match="has no column clip_id; found: name, caption"):
        read_clips(str(tmp_path / "b.parquet"), str(tmp_path / "d.csv"))
    (tmp_path / "e").mkdir()
    with pytest.raises(DataError, match="there is no file"):
        read_clips(str(tmp_path / "e"))
    numbers = pa.table({"clip_id": ["a"], "caption": ["x"], "split": ["train"], "features": [[1.0, 2.0]]})
    pq.write_table(numbers, tmp_path / "flat.parquet")
    with pytest.raises(DataError, match="'bad_features': 1"):
        read_clips(str(tmp_path / "flat.parquet"))
