"""The output folder: written to, left as it was, and large enough."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from repair_ray.config import Config, parse_config
from repair_ray.doctor.output import check_output, disk_need, scratch, unwritable


def config(output: Path, **sections: Any) -> Config:
    world = {"world": {"train": 10, "validation": 3, "test": 7}}
    return parse_config({"name": "r", "output": str(output), "data": world, "controls": [], **sections})


def test_nothing_is_left(tmp_path: Path) -> None:
    made = config(tmp_path / "not" / "there")
    with scratch(made) as folder:
        assert folder.parent == tmp_path, "the nearest folder that is there"
        finding = check_output(made, folder, 1000)
        assert finding.state == "ok" and "needed" in finding.found
    assert list(tmp_path.iterdir()) == []


def test_a_read_only_folder(read_only: Path) -> None:
    made = config(read_only)
    with pytest.raises(OSError) as caught, scratch(made):
        pass
    finding = unwritable(made, caught.value)
    assert finding.state == "failed" and f"cannot write to {read_only}" in finding.found
    assert "writable folder" in finding.advice


def test_a_file_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(OSError), scratch(config(tmp_path / "file")):
        pass
    # Also where the run's own folder should be.
    (tmp_path / "r").write_text("in the way")
    with scratch(config(tmp_path)) as folder:
        finding = check_output(config(tmp_path), folder, 1000)
    assert finding.state == "failed" and f"{tmp_path / 'r'} is there and cannot be written" in finding.found


def test_what_a_run_needs(tmp_path: Path) -> None:
    sections = {"base": {"steps": 1}, "edit": {"image_editor": "scene", "candidates": 2}, "mining": {"budget": 30}}
    need = disk_need(config(tmp_path, **sections, controls=["mined"]), parameters=100)
    assert need == {
        # 20 scenes of 5,000 bytes, as the world's files and as shards.
        "of pictures": 200_000,
        # 16 bytes a parameter (weights, two moments, the best weights), two kept and one being written.
        "of checkpoints": 4_800,
        # Base, round and one control, in fp32.
        "of weights of 3 trainings": 1_200,
        # 30 failures, two scenes each.
        "of edited pictures": 300_000,
    }


def test_pictures_inside_tables_are_copied(tmp_path: Path) -> None:
    for name, size in (("a.parquet", 3000), ("b.parquet", 500), ("notes.txt", 9999)):
        (tmp_path / name).write_bytes(b"x" * size)
    data = {"data": {"path": str(tmp_path)}}
    assert disk_need(config(tmp_path, **data), None)["of pictures"] == 3500
    # Pictures beside a JSON file stay where they are.
    (tmp_path / "k.json").write_bytes(b"x" * 777)
    assert disk_need(config(tmp_path, data={"path": str(tmp_path / "k.json")}), None)["of pictures"] == 0


def test_too_small_a_disk(tmp_path: Path) -> None:
    with scratch(config(tmp_path)) as folder:
        # 10^15 parameters are some 50 PB.
        finding = check_output(config(tmp_path), folder, 10**15)
        assert finding.state == "failed" and "free space" in finding.advice
        assert "is not known" in check_output(config(tmp_path), folder, None).found
