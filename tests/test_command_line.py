"""What a person sees who types something wrong: one line, a non-zero exit, no traceback. None of these starts Ray."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

DATA = "data: {world: {train: 4, validation: 2, test: 2}}\nedit: {image_editor: none}\n"


def command(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "repair_ray", *arguments], capture_output=True, text=True, cwd=cwd, timeout=120
    )


@pytest.mark.parametrize(
    ("config", "overrides", "expected"),
    [
        (DATA, ["training.lrr=1"], "unknown key 'training.lrr'; did you mean 'lr'?"),
        (DATA, ["training.lr=fast"], "training.lr='fast'"),
        (DATA, ["training.steps=0"], "training.steps=0"),
        (DATA, ["training.lr"], "not of the form key=value"),
        (DATA, ["mining.split=test"], "that trains on test data"),
        ("data: {path: nowhere.parquet}\n", [], "data.path: there is nothing at nowhere.parquet"),
        ("- a list\n", [], "must hold a mapping"),
        ("a: [\n", [], "is not YAML"),
    ],
)
def test_wrong_settings_name_the_key(tmp_path: Path, config: str, overrides: list[str], expected: str) -> None:
    (tmp_path / "c.yaml").write_text(config)
    ended = command("run", "c.yaml", *overrides, cwd=tmp_path)
    assert ended.returncode == 2
    assert expected in ended.stderr.replace("\n", " ")
    assert "Traceback" not in ended.stderr


def test_missing_config_file(tmp_path: Path) -> None:
    ended = command("run", "none.yaml", cwd=tmp_path)
    assert ended.returncode == 2
    assert "no config file at none.yaml" in ended.stderr


def test_output_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(DATA)
    (tmp_path / "file").write_text("in the way")
    ended = command("run", "c.yaml", "output=file", cwd=tmp_path)
    assert ended.returncode == 2
    assert "cannot write to" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_status_of_no_run(tmp_path: Path) -> None:
    ended = command("status", "runs/none", cwd=tmp_path)
    assert ended.returncode == 2
    assert "there is no run at" in ended.stderr


@pytest.mark.integration
def test_empty_data_set(tmp_path: Path) -> None:
    schema = pa.schema([("image", pa.string()), ("caption", pa.string())])
    pq.write_table(schema.empty_table(), tmp_path / "empty.parquet")
    (tmp_path / "c.yaml").write_text("data: {path: empty.parquet}\nretriever: {model: tiny-64}\nbase: {steps: 1}\n")
    ended = command("run", "c.yaml", cwd=tmp_path)
    assert ended.returncode == 2
    assert "empty.parquet" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.integration
def test_captions_without_pictures_and_unreadable_pictures(tmp_path: Path) -> None:
    (tmp_path / "bad.jpg").write_text("<html>not a picture</html>")
    entries = [
        {"filename": name, "imgid": i, "split": split, "sentids": [i], "sentences": [{"raw": "a dog", "sentid": i}]}
        for i, (name, split) in enumerate([("bad.jpg", "train"), ("gone.jpg", "train"), ("bad.jpg", "test")])
    ]
    (tmp_path / "k.json").write_text(json.dumps({"images": entries, "dataset": "x"}))
    (tmp_path / "c.yaml").write_text(
        "data: {path: k.json, image_root: .}\nretriever: {model: tiny-64}\nbase: {steps: 1}\n"
    )
    ended = command("run", "c.yaml", cwd=tmp_path)
    assert ended.returncode == 2
    assert "Traceback" not in ended.stderr
    assert ended.stderr.count("error:") == 1
