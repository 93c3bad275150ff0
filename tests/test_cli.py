"""Errors that a person can mend: one line that says what to do, exit code 2. In this process, and before Ray starts."""

from __future__ import annotations

from pathlib import Path

import pytest
from filelock import FileLock
from typer.testing import CliRunner

from repair_ray.cli import app

WORLD = "name: small\ndata: {world: {train: 4, validation: 2, test: 2}}\nretriever: {model: tiny-64}\n"
BASE = WORLD + "base: {steps: 1}\n"


def refuse(*arguments: str) -> str:
    """Run a command that is to fail; returns its one line."""
    ended = CliRunner().invoke(app, list(arguments))
    assert isinstance(ended.exception, SystemExit), ended.exception
    assert ended.exit_code == 2
    lines = ended.stderr.strip().splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("error: ")
    return lines[0]


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    Path("job.yaml").write_text(BASE)
    return "job.yaml"


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (["objectiv.placement=local"], "unknown key 'objectiv'; did you mean 'objective'?"),
        (["objective.placement=near"], "objective.placement='near'"),
        (["--controls", "vanila"], "controls.0='vanila'"),
        (["training.batch_size=[1]"], "training.batch_size=[1]"),
        (["data.world.train=0", "training.lr=0"], "data.world.train=0"),
    ],
)
def test_wrong_settings(job: str, overrides: list[str], expected: str) -> None:
    assert expected in refuse("run", job, *overrides)


def test_every_wrong_setting_is_told_at_once(job: str) -> None:
    line = refuse("run", job, "training.lr=0", "mining.k=0")
    assert "training.lr=0" in line
    assert "mining.k=0" in line


def test_missing_data(job: str) -> None:
    Path(job).write_text("data: {train: here.parquet, test: there.parquet}\nretriever: {model: tiny-64}\n")
    Path("here.parquet").touch()
    assert "data.test: there is nothing at there.parquet" in refuse("run", job)


@pytest.mark.parametrize(
    ("config", "override", "expected"),
    [
        (BASE, "retriever.model=ViT-Z-99", "unknown retriever.model 'ViT-Z-99'"),
        (BASE, "retriever.model=no/config.json", "no model config at no/config.json"),
        (WORLD, "retriever.pretrained=no/weights.pt", "retriever.pretrained: no checkpoint at no/weights.pt"),
        (WORLD, "seed=1", "retriever.pretrained is unset"),
    ],
)
def test_retrievers_that_are_not_there(job: str, config: str, override: str, expected: str) -> None:
    Path(job).write_text(config)
    assert expected in refuse("run", job, override)


def test_redo_of_no_stage(job: str) -> None:
    assert "--redo editz: no such stage" in refuse("run", job, "--redo", "editz")


def test_read_only_output(job: str, read_only: Path) -> None:
    line = refuse("run", job, f"output={read_only}")
    assert f"cannot write to {read_only}/small" in line
    assert "set output= to a writable folder" in line


def test_a_run_in_use(job: str) -> None:
    Path("runs/small").mkdir(parents=True)
    with FileLock("runs/small/.lock"):
        assert "another process works in" in refuse("run", job)


def test_report_of_an_unfinished_run(job: str) -> None:
    assert "no summary.json" in refuse("report", "runs/small")
