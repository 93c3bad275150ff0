"""The demo's world lies in the run directory, and follows its settings."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from repair_ray.config import WorldConfig
from repair_ray.run import RunError
from repair_ray.stages.data import _draw_world


def _pictures(folder: Path) -> list[bytes]:
    return [row["bytes"] for row in pq.read_table(folder / "train.parquet")["image"].to_pylist()]


def test_the_world_is_drawn_anew_for_other_settings(tmp_path: Path) -> None:
    settings = WorldConfig(train=4, validation=1, test=1)
    _draw_world(tmp_path, settings)
    first, written = _pictures(tmp_path), (tmp_path / "train.parquet").stat().st_mtime_ns
    _draw_world(tmp_path, settings)
    assert (tmp_path / "train.parquet").stat().st_mtime_ns == written, "the same world is left as it is"
    _draw_world(tmp_path, settings.model_copy(update={"seed": 1}))
    assert _pictures(tmp_path) != first


def test_a_half_drawn_world_is_drawn_again(tmp_path: Path) -> None:
    settings = WorldConfig(train=4, validation=1, test=1)
    _draw_world(tmp_path, settings)
    (tmp_path / "world.json").unlink()
    (tmp_path / "train.parquet").write_bytes(b"")
    _draw_world(tmp_path, settings)
    assert len(_pictures(tmp_path)) == 4


def test_a_world_beyond_the_vocabulary_is_an_error_of_the_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def exhausted(*_: object) -> None:
        raise ValueError("found only 9 of 10 new scenes; ask for a smaller world")

    monkeypatch.setattr("repair_ray.stages.data.make_world", exhausted)
    with pytest.raises(RunError, match=r"data\.world: found only 9 of 10 new scenes"):
        _draw_world(tmp_path, WorldConfig(train=4, validation=1, test=1))
