"""Submitting: what is uploaded, under which id, with which variables; and what is refused before anything is sent."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.testing import CliRunner

pytest.importorskip("pathspec")

import typer

from jobs import submit
from jobs.submit import ROOT, Job, SubmitError, Upload, attempts, check_paths, gather, next_id, read_job, variables
from repair_ray.config import ConfigError

SMOKE = ROOT / "jobs" / "smoke.yaml"
SHARED = "output=/shared/runs"


@dataclass
class Submitted:
    """What the dashboard tells of a job, as far as it is looked at."""

    submission_id: str
    status: str
    start_time: int | None = None
    end_time: int | None = None
    message: str | None = None


@pytest.fixture
def command() -> typer.Typer:
    app = typer.Typer()
    app.command()(submit.submit)
    return app


def test_the_entrypoint_is_the_documented_command() -> None:
    job, _ = read_job(SMOKE, "run", [SHARED, "data.world={train: 9, test: 3}"])
    assert job.entrypoint("jobs/smoke.yaml", ["edits"]) == (
        "python -m repair_ray run jobs/smoke.yaml output=/shared/runs 'data.world={train: 9, test: 3}' --redo edits"
    )
    text, _ = read_job(ROOT / "jobs" / "hncse.yaml", "text", [])
    assert text.entrypoint("hncse.yaml") == "python -m repair_ray text run hncse.yaml"


def test_ids_derive_from_the_name_of_the_run() -> None:
    job, _ = read_job(SMOKE, "run", ["name=big"])
    assert job.base_id == "big"
    assert read_job(SMOKE, "doctor", ["name=big"])[0].base_id == "big-doctor"


def test_a_wrong_config_is_told_here() -> None:
    with pytest.raises(ConfigError, match=r"training\.step"):
        read_job(SMOKE, "run", ["training.step=1"])
    with pytest.raises(SubmitError, match="--command walk"):
        read_job(SMOKE, "walk", [])
    with pytest.raises(ConfigError, match="unknown key 'texts'"):
        read_job(ROOT / "jobs" / "hncse.yaml", "run", [])


def test_attempts_are_counted_and_never_run_twice() -> None:
    jobs = [
        Submitted("a-2", "FAILED"),
        Submitted("a-10", "STOPPED"),
        Submitted("a-1", "SUCCEEDED"),
        Submitted("a-1-4", "RUNNING"),  # of a run named a-1
        Submitted("ab-7", "RUNNING"),
        Submitted("a-x", "RUNNING"),
        Submitted("", "RUNNING"),
    ]
    assert [number for number, _ in attempts("a", jobs)] == [1, 2, 10]
    assert next_id("a", jobs) == "a-11"
    assert next_id("b", jobs) == "b-1"
    with pytest.raises(SubmitError, match=r"a-1-4 is RUNNING.*--follow.*--stop"):
        next_id("a-1", jobs)
    with pytest.raises(SubmitError, match="a-3 is PENDING"):
        next_id("a", [*jobs, Submitted("a-3", "PENDING")])
    assert [number for number, _ in attempts("a.b", [Submitted("axb-1", "RUNNING")])] == []


def test_the_upload_is_the_package_and_the_config(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    job, _ = read_job(Path("jobs/smoke.yaml"), "run", [SHARED])
    upload, config = gather(job, False, [], [])
    assert config == "jobs/smoke.yaml" and config in upload.files
    assert "repair_ray/cli.py" in upload.files and "repair_ray/engines/models/tiny-64.json" in upload.files
    assert not [name for name in upload.files if "__pycache__" in name or not name.startswith(("repair_ray/", "jobs/"))]
    assert 0 < upload.check_size() < 20 * 2**20
    alone, _ = gather(job, True, [], [])
    assert list(alone.files) == ["jobs/smoke.yaml"]


def test_a_config_from_elsewhere_is_found_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    (tmp_path / "my.yaml").write_text(SMOKE.read_text())
    job, _ = read_job(tmp_path / "my.yaml", "run", [SHARED])
    upload, config = gather(job, True, [], [])
    assert config == "my.yaml" and upload.files == {"my.yaml": tmp_path / "my.yaml"}
    upload.copy_to(tmp_path / "laid")
    assert (tmp_path / "laid" / config).read_text() == SMOKE.read_text()


def test_ignored_files_stay_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("lists/a.csv", "lists/b.parquet", "lists/__pycache__/c.pyc", "lists/old/d.csv"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    monkeypatch.chdir(tmp_path)
    job = Job("a", "/shared", SMOKE, "run")
    upload, _ = gather(job, True, [Path("lists")], ["old/"])
    assert set(upload.files) == {"lists/a.csv", "smoke.yaml"}
    # A file that is named is wanted.
    upload, _ = gather(job, True, [Path("lists/b.parquet")], [])
    assert "lists/b.parquet" in upload.files
    with pytest.raises(SubmitError, match="nothing to upload"):
        gather(job, True, [Path("lists/__pycache__")], [])
    with pytest.raises(SubmitError, match="nothing to upload at absent"):
        gather(job, True, [Path("absent")], [])


def test_an_upload_that_is_too_large_names_its_largest_files(tmp_path: Path) -> None:
    upload = Upload()
    for name, size in (("small.bin", 1), ("large.bin", 60 * 2**20), ("larger.bin", 70 * 2**20)):
        with (tmp_path / name).open("wb") as file:
            file.truncate(size)
        upload.files[name] = tmp_path / name
    with pytest.raises(SubmitError) as caught:
        upload.check_size()
    message = str(caught.value)
    assert message.startswith("the upload has 130.0 MiB, and Ray takes 100")
    assert message.index("larger.bin (70.0 MiB)") < message.index("large.bin (60.0 MiB)")
    del upload.files["large.bin"]
    assert upload.check_size() == 70 * 2**20 + 1


def test_paths_of_this_machine_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "train.csv").write_text("x")
    settings = ["data.world=null", "edit.image_editor=none", "data.path=data/train.csv"]
    job, loaded = read_job(SMOKE, "run", [SHARED, *settings])
    with pytest.raises(SubmitError, match=r"data\.path=data/train\.csv is a path of this machine"):
        check_paths(job, loaded, Upload())
    included = Upload()
    included.add(Path("data/train.csv"), tmp_path)
    check_paths(job, loaded, included)
    job, loaded = read_job(SMOKE, "run", [SHARED, *settings[:2], "data.path=/shared/data/train.csv"])
    check_paths(job, loaded, Upload())
    job, loaded = read_job(SMOKE, "run", [])
    with pytest.raises(SubmitError, match="output=runs is relative"):
        check_paths(job, loaded, Upload())


def test_secrets_go_by_name_and_are_never_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUDGE_KEY", "hush-hush")
    monkeypatch.delenv("OTHER_KEY", raising=False)
    assert variables(["JUDGE_KEY"], ["A=b=c", "EMPTY="]) == {"JUDGE_KEY": "hush-hush", "A": "b=c", "EMPTY": ""}
    with pytest.raises(SubmitError, match="--secret OTHER_KEY: it is not set here"):
        variables(["OTHER_KEY"], [])
    with pytest.raises(SubmitError) as caught:
        variables(["JUDGE_KEY=hush-hush"], [])
    assert "hush" not in str(caught.value)
    with pytest.raises(SubmitError, match="write NAME=value"):
        variables([], ["A"])


def test_without_an_address_no_cluster_is_guessed(command: typer.Typer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_API_SERVER_ADDRESS", raising=False)
    ended = CliRunner().invoke(command, [str(SMOKE), SHARED])
    assert ended.exit_code == 1 and "RAY_API_SERVER_ADDRESS" in ended.stderr


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--stop", "--status"], "take one of"),
        (["name=a/b"], "name"),
        (["--secret", "NOT_SET_ANYWHERE"], "NOT_SET_ANYWHERE"),
    ],
)
def test_mistakes_are_one_line(command: typer.Typer, arguments: list[str], told: str) -> None:
    ended = CliRunner().invoke(command, [str(SMOKE), SHARED, "--address", "http://127.0.0.1:9", *arguments])
    assert ended.exit_code == 1 and told in ended.stderr and ended.stderr.startswith("error: ")
    assert "Traceback" not in ended.output


def test_nobody_answers(command: typer.Typer) -> None:
    pytest.importorskip("aiohttp_cors", reason="needs ray[default]")
    ended = CliRunner().invoke(command, [str(SMOKE), SHARED, "--address", "http://127.0.0.1:9"])
    assert ended.exit_code == 1 and "http://127.0.0.1:9" in ended.stderr and "Traceback" not in ended.output
