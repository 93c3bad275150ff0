"""From sources to rows, before any picture is opened."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from repair_ray import tables
from repair_ray.config import Config, parse_config
from repair_ray.run import Run
from repair_ray.stages.sources import gather, source_digest, sources_of


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path


def row(name: str, split: str | None = "train", data: bytes = b"x") -> dict[str, Any]:
    return {"image": {"bytes": data, "path": name}, "caption": f"caption of {name}", "split": split}


def images_of(config: Config, folder: Path) -> list[dict[str, Any]]:
    files = folder / "images.parquet", folder / "captions.parquet"
    gather(Run(folder / "run"), config, sources_of(config.data, folder), *files)
    return pq.read_table(files[0]).to_pylist()


def test_rows_of_other_splits_are_rows_with_a_reason(tmp_path: Path) -> None:
    rows = [row("a"), row("b", "test"), row("c", "extra"), row("d", None)]
    data = {"path": str(write(tmp_path / "all.parquet", rows))}
    config = parse_config({"data": data})
    found = images_of(config, tmp_path)
    assert [(r["split"], r["status"], r.get("reason")) for r in found] == [
        ("train", tables.OK, None),
        ("test", tables.OK, None),
        ("extra", tables.REJECTED, "split 'extra' is none of train, validation, test"),
        ("unknown", tables.REJECTED, "split 'unknown' is none of train, validation, test"),
    ]
    assert len({r["image_id"] for r in found}) == 4


def test_a_bad_row_of_a_file_that_is_named_for_two_splits_comes_once_for_each(tmp_path: Path) -> None:
    rows = [row("a"), row("b", "test"), row("c", "train", data=b"") | {"caption": None}]
    path = str(write(tmp_path / "all.parquet", rows))
    config = parse_config({"data": {"train": path, "test": path}})
    found = images_of(config, tmp_path)
    assert [r["status"] for r in found].count(tables.ERROR) == 2
    assert len({r["image_id"] for r in found}) == len(found) == 4


def test_the_digest_follows_every_file_that_the_path_names(tmp_path: Path) -> None:
    paths = [tmp_path / "deep" / "er" / "one.parquet", tmp_path / "deep" / "two.parquet", tmp_path / "three.parquet"]
    for path in paths:
        write(path, [row("a")])
    patterns = [
        str(tmp_path / "deep"),
        str(tmp_path / "deep" / "**" / "*.parquet"),
        str(tmp_path / "{two,three}.parquet"),
    ]
    write(tmp_path / "two.parquet", [row("a")])
    before = [source_digest(pattern) for pattern in patterns]
    assert before[0] == before[1] != before[2], "the same files, the same digest"
    assert before == [source_digest(pattern) for pattern in patterns]
    for path in (paths[0], paths[2]):
        os.utime(path, ns=(1, 1))
    assert all(a != b for a, b in zip(before, [source_digest(pattern) for pattern in patterns], strict=True))
