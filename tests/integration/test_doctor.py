"""The doctor on real Ray: a healthy config, a judge that refuses, and what the command ends with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from repair_ray.cli import app
from repair_ray.config import Config, parse_config
from repair_ray.doctor import Finding, examine
from repair_ray.engines.encoder import build_model, save_weights
from repair_ray.engines.retriever import RetrieverSpec
from tests.engines.fault_server import FaultServer, status

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("local_ray")]

KEY = "sk-doctor-9876"
TREE = {
    "name": "r",
    "data": {"world": {"train": 100, "validation": 20, "test": 50}},
    "retriever": {"model": "tiny-64"},
    "edit": {"image_editor": "scene"},
    "objective": {"placement": "both"},
}


@pytest.fixture(scope="module", autouse=True)
def key() -> Iterator[None]:
    """Set before Ray starts: its workers have the environment that it was started in."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REPAIR_RAY_TEST_KEY", KEY)
        yield


def config(output: Path, **sections: object) -> Config:
    return parse_config({**TREE, "output": str(output), **sections})


def trials(found: list[Finding]) -> dict[str, Finding]:
    return {f.check.removeprefix("trial: "): f for f in found if f.check.startswith("trial: ")}


@pytest.mark.whole_runs
def test_a_healthy_config(tmp_path: Path) -> None:
    told: list[str] = []
    found = examine(config(tmp_path, base={"batch_size": 64}, controls=["mined"]), tell=told.append)
    assert {finding.state for finding in found} == {"ok"}, found
    stages = ["data/images", "data/captions", "base/training", "base/metrics"]
    parts = ("embeddings", "failures", "verdicts", "edits", "training", "evaluation", "metrics", "truth")
    assert set(trials(found)) == {*stages, *(f"round-1/{part}" for part in parts)}
    assert "48 ok" in trials(found)["data/images"].found, "16 rows a split"
    assert {"packages", "cluster", "trial: round-1/edits"} <= set(told)
    assert list(tmp_path.iterdir()) == [], "nothing is left, and no run was begun"


@pytest.mark.whole_runs
def test_a_judge_that_refuses(tmp_path: Path) -> None:
    weights = tmp_path / "random.safetensors"
    save_weights(build_model(RetrieverSpec("tiny-64")), weights)
    # Every question holds this word: nobody is let in.
    server = FaultServer("", {"a": status(401)})
    endpoint = {"url": server.url, "key_variable": "REPAIR_RAY_TEST_KEY"}
    judge = {"backend": "openai", "model": "m", "endpoint": endpoint}
    pretrained = {"model": "tiny-64", "pretrained": str(weights)}
    try:
        found = examine(config(tmp_path / "runs", retriever=pretrained, audit={"language": judge}))
    finally:
        server.shutdown()
        server.server_close()
    assert KEY not in repr(found)
    assert server.keys == {f"Bearer {KEY}"}
    states = {finding.check: finding.state for finding in found}
    assert states["endpoint of audit.language"] == "failed"
    made = trials(found)
    assert made["round-1/failures"].state == "ok"
    answers = made["round-1/verdicts_answers"]
    assert answers.state == "failed" and "4 error (endpoint: HTTP 401" in answers.found
    # What needs an answer is not tried; what does not is.
    assert made["round-1/edits"].state == "skipped"
    assert made["round-1/training"].state == made["round-1/evaluation"].state == "ok"
    assert "base/training" not in made
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("override", "code", "expected"),
    [
        ("seed=1", 0, "Nothing failed"),
        ("pool.actors=40", 1, "data/images needs 41 CPUs and the cluster has"),
        ("retriever.model=ViT-Z-99", 1, "unknown retriever.model 'ViT-Z-99'"),
        ("training.lr=fast", 2, "training.lr='fast'"),
    ],
)
def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, override: str, code: int, expected: str) -> None:
    monkeypatch.setenv("COLUMNS", "240")
    job = tmp_path / "job.yaml"
    job.write_text(
        f"output: {tmp_path / 'runs'}\ndata: {{world: {{train: 8, validation: 2, test: 4}}}}\n"
        "retriever: {model: tiny-64}\nbase: {steps: 1}\n"
    )
    ended = CliRunner().invoke(app, ["doctor", str(job), override, "--no-trial"])
    assert ended.exit_code == code
    assert expected in ended.stdout + ended.stderr
    assert code == 2 or "left out" in ended.stdout
