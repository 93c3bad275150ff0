"""`repair-ray status`: from files alone, of runs that work, were killed, stopped, finished, or are broken."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from repair_ray import tables
from repair_ray.observing.figures import Watched, named
from repair_ray.observing.heartbeat import FILE, Heartbeat
from repair_ray.observing.meter import Meter
from repair_ray.report.status import headline, status_view
from repair_ray.run import Recipe, Run, RunError, write_json
from repair_ray.status import status_of
from tests.export.made_run import make_run

NOW = 1_000_000.0
STAGE = "round-1/training"


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Data, failures, verdicts and edits are finished; training has 60 of 200 steps, at 4 a second."""
    made, _ = make_run(tmp_path)
    assert not made.ready(STAGE, Recipe({}, ("round-1/edits",)))
    made.clock(STAGE).keep(steps=60, total=200, rate=4.0)
    return made


def beat(run: Run, age: float, **facts: Any) -> None:
    record = {"pid": 41, "host": "node-7", "started": NOW - 500, "beat": NOW - age, "folder": "/work"}
    write_json(run.folder / FILE, {**record, "command": "repair-ray run my.yaml", **facts})


def product(status: dict[str, Any], name: str) -> dict[str, Any]:
    (found,) = [product for product in status["products"] if product["name"] == name]
    return found


def shown(status: dict[str, Any], width: int = 140) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(status_view(status))
    file = console.file
    assert isinstance(file, io.StringIO)
    return file.getvalue()


def test_a_run_that_works(run: Run) -> None:
    beat(run, age=3)
    status = status_of(run.folder, NOW)
    assert status["state"] == "running" and status["heartbeat"]["age_seconds"] == 3
    training = product(status, STAGE)
    assert (training["state"], training["unit"], training["done"], training["total"]) == (
        "in progress",
        "steps",
        60,
        200,
    )
    assert training["eta_seconds"] == 35, "140 steps at 4 a second"
    edits = product(status, "round-1/edits")
    assert (edits["state"], edits["done"], edits["reasons"]) == ("finished", 5, {"too far": 1})
    # What is still to come, in the order of the run: a stage that is finished or goes on is none of it.
    missing = [found["name"] for found in status["products"] if found["state"] == "missing"]
    assert missing[:2] == ["round-1/embeddings", "round-1/verdicts_answers"]
    assert missing[-1] == "controls/vanilla_equal_compute/evaluation"
    assert not {"data/images", "round-1/failures", STAGE} & set(missing)
    text = shown(status)
    assert "60 of 200" in text and "4.0" in text and "35.0 s" in text
    assert "Running: process 41 on node-7, last seen 3 s ago" in text
    assert "too far" in text


def test_a_run_that_was_killed(run: Run) -> None:
    beat(run, age=125)
    status = status_of(run.folder, NOW)
    assert status["state"] == "silent"
    training = product(status, STAGE)
    assert training["state"] == "half-made"
    assert training["rate"] is None and training["eta_seconds"] is None, "nothing goes on"
    said = headline(status).plain
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(NOW - 125))
    assert f"Silent since {since}, 2 min 05 s ago" in said
    assert said.endswith("To go on: in /work, repair-ray run my.yaml")


@pytest.mark.parametrize(("age", "state"), [(30.0, "running"), (30.5, "silent"), (-100.0, "running")])
def test_how_long_a_run_may_be_silent(run: Run, age: float, state: str) -> None:
    beat(run, age=age)
    status = status_of(run.folder, NOW)
    assert status["state"] == state
    assert ("the clock of node-7 is 100 s ahead" in headline(status).plain) == (age < 0)


def test_a_run_that_stopped_says_why(run: Run) -> None:
    beat(run, age=500, ended=NOW - 500, error="the disk of [/x] is full", command=None)
    status = status_of(run.folder, NOW)
    assert status["state"] == "stopped"
    said = headline(status).plain
    assert "the disk of [/x] is full" in said and "Start the same command again" in said


def test_a_finished_run(run: Run) -> None:
    (run.path(STAGE) / "begun.json").unlink()
    write_json(run.folder / "summary.json", {})
    beat(run, age=500, ended=NOW - 500)
    status = status_of(run.folder, NOW)
    assert status["state"] == "finished" and headline(status).plain.startswith("Finished at")
    (run.folder / FILE).unlink()
    assert status_of(run.folder, NOW)["state"] == "finished", "made before there were heartbeats"
    (run.folder / "summary.json").unlink()
    status = status_of(run.folder, NOW)
    assert status["state"] == "unknown" and "No process has told of itself" in headline(status).plain
    beat(run, age=500, ended=NOW - 500)
    assert status_of(run.folder, NOW)["state"] == "ended"


def test_a_graph_that_goes_on_tells_its_rows_and_its_actors(run: Run) -> None:
    beat(run, age=1)
    name = "round-1/evaluation"
    assert not run.ready(name, Recipe({}))
    run.clock(name).keep(done=30, total=90, rate=1.5)
    half = run.path(name) / "half-made"
    (half / "rows").mkdir(parents=True)
    rows = {"item_id": ["a", "b", "c"], "status": ["ok", "error", "error"], "reason": [None, "html", "html"]}
    pq.write_table(pa.table(rows), half / "rows" / "a.parquet")
    (half / "rows" / "b.parquet").write_bytes(b"PAR1 cut off")
    watched = Watched(named([("EmbedItems", "pool", 1, 1.0)]), seconds=10.0)
    watched.keep(half / "figures")
    at = [0.0]
    meter = Meter(half / "figures" / "EmbedItems", clock=lambda: at[0], beat=None)
    with meter.batch(30):
        at[0] = 6.0
    at[0] = 8.0
    meter.close()
    status = status_of(run.folder, NOW)
    found = product(status, name)
    assert (found["done"], found["total"], found["eta_seconds"]) == (30, 90, 40)
    assert found["statuses"] == {"ok": 1, "error": 2} and found["reasons"] == {"html": 2}
    (pool,) = found["figures"]
    assert (pool["rows_per_second"], pool["utilisation"], pool["idle_gpu_seconds"]) == (3, 0.75, 2)
    text = shown(status)
    assert "EmbedItems" in text and "75 %" in text and "html" in text
    # Killed before the driver had counted: rows are those that lie there.
    run.clock(name).keep()
    begun = json.loads((run.path(name) / "begun.json").read_text())
    write_json(run.path(name) / "begun.json", {key: begun[key] for key in ("recipe", "started", "seconds")})
    assert product(status_of(run.folder, NOW), name)["done"] == 3


def test_bad_rows_of_all_products_are_shown_up_to_ten(tmp_path: Path) -> None:
    made, _ = make_run(tmp_path)
    bad = {"direction": "i2t", "query_id": "q", "status": "error"}
    rows = [{"failure_id": str(n), "reason": f"cause {n % 12}", **bad} for n in range(24)]
    made.ready("round-1/other", Recipe({}))
    kind = tables.FAILURES
    made.commit("round-1/other", Recipe({}), kind, tables.to_table(rows, kind.schema), 1.0)
    text = shown(status_of(made.folder, NOW))
    assert text.count("cause ") == 10 and "3 other reasons" in text


def test_names_and_reasons_from_outside_are_no_markup(tmp_path: Path) -> None:
    folder = tmp_path / "[bold red]x"
    folder.mkdir()
    write_json(folder / "config.json", {})
    made = Run(folder)
    made.ready("a", Recipe({}))
    made.finish("a", Recipe({}), 1.0, rows=2, statuses={"error": 2}, reasons={"\x1b[31m[red]html": 2})
    text = shown(status_of(folder, NOW))
    assert "Run [bold red]x" in text and "·[31m[red]html" in text and "\x1b" not in text


class TestBroken:
    def test_no_run(self, tmp_path: Path) -> None:
        for place in (tmp_path, tmp_path / "none"):
            with pytest.raises(RunError, match="there is no run at"):
                status_of(place)

    def test_a_manifest_that_was_cut(self, run: Run) -> None:
        (run.path("round-1/edits") / "manifest.json").write_text('{"rows": 5')
        with pytest.raises(RunError, match=r"round-1/edits/manifest\.json cannot be read as JSON"):
            status_of(run.folder)

    def test_a_manifest_without_its_keys(self, run: Run) -> None:
        write_json(run.path("round-1/edits") / "manifest.json", {"rows": 5})
        with pytest.raises(
            RunError, match=r"edits/manifest\.json is no manifest of this version \(KeyError: 'seconds'\)"
        ):
            status_of(run.folder)

    def test_a_list_instead_of_an_object(self, run: Run) -> None:
        (run.path(STAGE) / "begun.json").write_text("[]")
        with pytest.raises(RunError, match=r"begun\.json holds no object"):
            status_of(run.folder)

    def test_a_config_of_another_version_tells_the_products_all_the_same(self, run: Run) -> None:
        write_json(run.folder / "config.json", {"colour": "red"})
        states = {found["state"] for found in status_of(run.folder)["products"]}
        assert states == {"finished", "half-made"}


def command(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    paths = [str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    return subprocess.run(
        [sys.executable, "-m", "repair_ray", "status", *words],
        capture_output=True,
        text=True,
        cwd=cwd,
        timeout=60,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
    )


def test_the_command_for_people_and_for_programs(run: Run) -> None:
    beat(run, age=NOW - time.time() + 10)
    ended = command("made", cwd=run.folder.parent)
    assert ended.returncode == 0, ended.stderr
    assert "Run made" in ended.stdout and STAGE in ended.stdout
    told = json.loads(command("made", "--json", cwd=run.folder.parent).stdout)
    assert told["run"] == "made" and product(told, "round-1/edits")["done"] == 5


def test_the_command_on_a_broken_run(run: Run) -> None:
    (run.folder / FILE).write_text("{")
    ended = command("made", cwd=run.folder.parent)
    assert ended.returncode == 2 and "heartbeat.json" in ended.stderr and "Traceback" not in ended.stderr


def test_watching_ends_with_the_run(run: Run) -> None:
    with Heartbeat(run.folder, every=0.1):
        paths = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
        watching = subprocess.Popen(
            [sys.executable, "-m", "repair_ray", "status", "made", "--watch", "--json", "--every", "0.2"],
            stdout=subprocess.PIPE,
            text=True,
            cwd=run.folder.parent,
            env={**os.environ, "PYTHONPATH": paths},
        )
        assert watching.stdout is not None
        states = [json.loads(watching.stdout.readline())["state"] for _ in range(2)]
    rest = [json.loads(line)["state"] for line in watching.communicate(timeout=60)[0].splitlines()]
    assert states == ["running", "running"] and rest[-1] == "ended" and watching.returncode == 0


def test_nothing_of_it_imports_ray() -> None:
    code = (
        "import sys, pathlib, repair_ray.status, repair_ray.report.status;"
        "print([name for name in ('ray', 'torch', 'open_clip') if name in sys.modules])"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert ended.stdout.strip() == "[]", ended.stderr
