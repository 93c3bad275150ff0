"""`repair-ray multimatch`: what it prints, how it fails, and a page that is really served."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from repair_ray.cli import app
from repair_ray.config import Config
from repair_ray.multimatch.candidates import make_pairs
from repair_ray.multimatch.verify import verify_by_groups
from repair_ray.run import Run
from tests.multimatch.conftest import settings
from tests.multimatch.test_labelling import EXPERTS

ROOT = Path(__file__).parents[2]


def fetch(address: str, body: dict[str, str] | None = None) -> dict[str, Any]:
    """What the page answers; a proxy that the machine may have is passed by."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(address, data, {"Content-Type": "application/json"})
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=20) as answer:
        found: dict[str, Any] = json.load(answer)
    return found


@pytest.fixture
def labelled(made: tuple[Run, Config]) -> Path:
    run, config = made
    make_pairs(run, config, EXPERTS)
    verify_by_groups(run, config)
    return run.folder


def said(*arguments: object, code: int = 0) -> str:
    ended = CliRunner().invoke(app, ["multimatch", *map(str, arguments)])
    assert ended.exit_code == code, ended.output
    return " ".join(ended.output.split())


def test_verify_labels_anew_and_stats_says_what_there_is(labelled: Path) -> None:
    assert "has no labels yet" in said("stats", labelled, code=2)
    first = said("verify", labelled)
    assert "Completeness: recall of the experts' union" in first and "80.0–80.0" in first
    assert "two (teacher)" in first and "labelled by" not in first.split("Experts")[0]
    assert f"benchmark: {labelled / 'multimatch/benchmark'}" in first
    again = said("stats", labelled)
    assert "Labelled by the data's own groups" in again
    assert json.loads((labelled / "stats.json").read_text())["completeness"]["all"]["recall"] == 80.0


def test_sheets(labelled: Path, tmp_path: Path) -> None:
    sheet = tmp_path / "a.csv"
    assert "--sheet writes a sheet for one --annotator" in said("verify", labelled, "--sheet", sheet, code=2)
    assert "5 pairs to label" in said("verify", labelled, "--sheet", sheet, "--annotator", "anna", "--n", 5)
    sheet.write_text(sheet.read_text("utf-8-sig").replace(",,anna", ",yes,anna"))
    answer = said("verify", labelled, "--labels", sheet)
    assert "5 labels are new or changed" in answer and "groups, people/anna" in answer
    assert "no labels file" in said("verify", labelled, "--labels", tmp_path / "none.csv", code=2)


def test_what_is_wrong_is_one_line(labelled: Path, tmp_path: Path) -> None:
    assert "there is no run at" in said("stats", tmp_path / "none", code=2)
    assert "take letters, digits" in said("review", labelled, "--annotator", "../x", code=2)
    tree = settings(tmp_path, experts=[])
    (tmp_path / "a.yaml").write_text(yaml.safe_dump(tree))
    assert "multimatch.experts is empty" in said("build", tmp_path / "a.yaml", code=2)
    del tree["multimatch"]
    (tmp_path / "a.yaml").write_text(yaml.safe_dump(tree))
    assert "the config has no section multimatch" in said("build", tmp_path / "a.yaml", code=2)


def test_the_page_is_served_here_alone_and_keeps_each_label(labelled: Path) -> None:
    pytest.importorskip("uvicorn", reason="pip install repair_ray[review]")
    command = [sys.executable, "-m", "repair_ray", "multimatch", "review", str(labelled)]
    command += ["--annotator", "anna", "--annotator", "ben"]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "COLUMNS": "200"}
    # What was started in the background of a script ignores Ctrl-C, and so would what it starts.
    heard = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment, preexec_fn=heard
    ) as server:
        try:
            assert server.stdout is not None
            lines = [server.stdout.readline() for _ in range(2)]
            places = dict(re.findall(r"(\w+): (http://127\.0\.0\.1:\d+/[\w-]{43}/as/\w+)", "".join(lines)))
            assert set(places) == {"anna", "ben"}, lines
            for name, label in (("anna", "yes"), ("ben", "no")):
                item = fetch(f"{places[name]}/items")["item"]
                assert fetch(f"{places[name]}/labels", {"item": item, "label": label}) == {"done": 1, "total": 18}
                # On the disk while the page is still served.
                kept = (labelled / f"multimatch/annotations/{name}.jsonl").read_text().splitlines()
                assert json.loads(kept[-1])["label"] == label
        finally:
            server.send_signal(signal.SIGINT)
        assert server.wait(timeout=30) == 130
    answer = said("verify", labelled)
    assert "people/anna, people/ben" in answer
