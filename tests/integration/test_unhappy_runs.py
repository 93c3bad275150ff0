"""Data that cannot be used, a retriever that cannot be built, nothing to repair, a full disk: one line, exit code 2."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from typer.testing import CliRunner

from repair_ray.cli import app
from repair_ray.config import parse_config
from repair_ray.engines.encoder import build_model, save_weights
from repair_ray.engines.retriever import RetrieverSpec
from repair_ray.run import CAPTIONS, IMAGES, Run
from repair_ray.stages.ingest import ingest

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("local_ray")]

SCHEMA = pa.schema(
    [
        ("image", pa.struct([("bytes", pa.binary()), ("path", pa.string())])),
        ("caption", pa.string()),
        ("split", pa.string()),
    ]
)
Row = tuple[dict[str, Any] | None, str | None, str | None]


def _picture(number: int, size: int = 16) -> dict[str, Any]:
    pixels = np.random.default_rng(number).integers(0, 255, (size, size, 3), np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return {"bytes": file.getvalue(), "path": None}


GOOD: list[Row] = [(_picture(i), f"a dog number {i}", "train" if i < 6 else "test") for i in range(10)]


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("weights") / "random.safetensors"
    save_weights(build_model(RetrieverSpec("tiny-64")), path)
    return path


@pytest.fixture
def job(tmp_path: Path, weights: Path) -> str:
    path = tmp_path / "job.yaml"
    path.write_text(
        f"output: {tmp_path / 'runs'}\n"
        f"data: {{path: {tmp_path / 'data.parquet'}}}\n"
        f"retriever: {{model: tiny-64, pretrained: {weights}}}\n"
    )
    return str(path)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of one megabyte."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small disk is not allowed here")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def _write(rows: list[Row], job: str) -> None:
    columns = [pa.array(list(values), kind) for values, kind in zip(zip(*rows, strict=True), SCHEMA.types, strict=True)]
    pq.write_table(pa.table(columns, SCHEMA), Path(job).with_name("data.parquet"))


def _refuse(*arguments: str) -> str:
    """Run a command that is to fail; returns the last line, the only one that is no progress."""
    ended = CliRunner().invoke(app, ["run", *arguments])
    assert isinstance(ended.exception, SystemExit), ended.exception
    assert ended.exit_code == 2
    *progress, line = ended.stderr.strip().splitlines()
    assert not [text for text in progress if "error" in text.lower()]
    assert line.startswith("error: ")
    return line


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([], "holds no rows"),
        ([(None, text, split) for _, text, split in GOOD], "10 no_image"),
        ([({"bytes": None, "path": "gone.png"}, text, split) for _, text, split in GOOD], "set data.image_root"),
        ([(image, " ", split) for image, _, split in GOOD], "10 no_caption"),
        ([(image, text, None) for image, text, _ in GOOD], "no row of split 'train'; splits found: unknown (10)"),
        (GOOD[:6], "no row of split 'test'; splits found: train (6)"),
        ([({"bytes": b"<html>", "path": None}, text, split) for _, text, split in GOOD], "10 of 10 rows failed"),
    ],
    ids=["empty", "no picture", "missing files", "no caption", "no split", "no test split", "unreadable"],
)
def test_data_that_cannot_be_used(job: str, rows: list[Row], expected: str) -> None:
    if rows:
        _write(rows, job)
    else:
        pq.write_table(SCHEMA.empty_table(), Path(job).with_name("data.parquet"))
    assert expected in _refuse(job)


def test_a_bad_row_of_a_file_that_holds_every_split(job: str, tmp_path: Path) -> None:
    rows = [*GOOD]
    rows[2], rows[4] = (None, "no picture", "train"), ({"bytes": b"<html>", "path": None}, "a web page", "train")
    _write(rows, job)
    config = parse_config({"data": {"path": str(tmp_path / "data.parquet")}})
    run = Run(tmp_path / "run")
    ingest(run, config, {}, dict.fromkeys(("train", "validation", "test"), str(tmp_path / "data.parquet")))
    assert run.manifest(IMAGES)["statuses"] == {"ok": 8, "error": 2}
    assert run.manifest(IMAGES)["reasons"] == {"no_image": 1, "html": 1}
    splits = [row["split"] for row in run.read(CAPTIONS).to_pylist() if row["status"] == "ok"]
    assert sorted(splits) == ["test"] * 4 + ["train"] * 4, "no row is in two splits"


def test_a_retriever_that_cannot_be_built(job: str) -> None:
    _write(GOOD, job)
    # In a process of its own: there, nothing that Ray prints may come between.
    command = [sys.executable, "-m", "repair_ray", "run", job, "retriever.pretrained=no-such-tag"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == 2
    assert ended.stdout == ""
    assert "Traceback" not in ended.stderr
    line = ended.stderr.strip().splitlines()[-1]
    assert line == "error: retriever.pretrained=no-such-tag: no file, and no tag of tiny-64; its tags: none"


def test_nothing_to_repair(job: str) -> None:
    _write([GOOD[0], GOOD[9]], job)
    line = _refuse(job)
    assert "round-1/failures: split train shows no failure to repair (2 x no false positive)" in line


def test_a_full_disk(job: str, small_disk: Path) -> None:
    _write([(_picture(i, 128), text, split) for i, (_, text, split) in enumerate(GOOD * 3)], job)
    assert "the disk is full" in _refuse(job, f"output={small_disk}")
