"""Questions to an endpoint through Ray Data: no row lost, none asked twice, the key nowhere."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from repair_ray import tables
from repair_ray.run import Run, RunError
from repair_ray.stages.audit import audit
from repair_ray.stages.edit import edit
from tests.engines.fault_server import FaultServer, half_closed, in_turn, says, status, until_the_client_goes
from tests.integration.language_run import SPEC, VALID, config, prepare

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("local_ray")]

KEY = "sk-integration-4321"


@pytest.fixture(scope="module", autouse=True)
def key() -> Iterator[None]:
    """Set before Ray starts: its workers have the environment that it was started in."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REPAIR_RAY_TEST_KEY", KEY)
        yield


@pytest.fixture(scope="module")
def prepared(local_ray: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("language") / "run"
    prepare(folder, config({}, budget=12))
    return folder


def language(server: FaultServer, **changes: Any) -> dict[str, Any]:
    endpoint = {"url": server.url, "key_variable": "REPAIR_RAY_TEST_KEY", "retries": 2, "timeout_s": 5.0}
    pool = {"rows_per_block": 4, "num_cpus": 0.5}
    return {"backend": "openai", "model": "m", "endpoint": endpoint, "pool": pool, **changes}


def texts(run: Run) -> list[tuple[str, str]]:
    """Failure id, and what stands in its question alone: all captions of its query, where that has one failure."""
    captions: dict[str, list[str]] = {}
    for row in sorted(run.read("data/captions").to_pylist(), key=lambda row: row["position"]):
        captions.setdefault(row["image_id"], []).append(row["text"])
    rows = [row for row in run.read("failures").to_pylist() if row["status"] == "ok" and row["direction"] == "i2t"]
    queries = [row["query_id"] for row in rows]
    return [
        (row["failure_id"], f"Its own captions: {json.dumps(captions[row['query_id']])}")
        for row in rows
        if queries.count(row["query_id"]) == 1
    ]


def test_faults_become_statuses_and_nothing_is_asked_again(run: Run, server: FaultServer) -> None:
    (refused, a), (prose, b), (late_good, c), (cut, d) = texts(run)[:4]
    server.script = {
        json.dumps(a)[1:-1]: status(400),
        json.dumps(b)[1:-1]: says("I would say it is valid."),
        json.dumps(c)[1:-1]: in_turn(half_closed, status(429, Retry_After="0"), says(VALID)),
        json.dumps(d)[1:-1]: says(VALID[:40], finish="length"),
    }
    made = config(language(server), budget=12)
    audit(run, made, "verdicts", "failures")
    rows = {row["failure_id"]: row for row in run.read("verdicts").to_pylist()}
    mined = [row for row in run.read("failures").to_pylist() if row["status"] == "ok"]
    assert rows.keys() == {row["failure_id"] for row in mined} and len(rows) == 24
    assert all(count > 0 for count in server.counts.values()) and len(server.counts) == 5
    for identity, reason in ((refused, "endpoint: HTTP 400"), (prose, "prose instead of JSON"), (cut, "cut at")):
        assert rows[identity]["status"] == tables.ERROR and rows[identity]["reason"].startswith(reason)
    good = [row for row in rows.values() if row["status"] == tables.OK]
    assert len(good) == 21 and rows[late_good] in good
    assert {(row["judgement"], row["judge"]) for row in good} == {("valid", "m")}
    answers = {row["failure_id"]: row for row in run.read("verdicts_answers").to_pylist()}
    assert answers[late_good]["calls"] == 3 and answers[prose]["input_tokens"] == 14
    assert server.keys == {f"Bearer {KEY}"}
    for path in run.folder.rglob("*"):
        assert not path.is_file() or KEY.encode() not in path.read_bytes(), path

    asked = server.requests
    run.redo("verdicts")
    audit(run, made, "verdicts", "failures")
    run.redo("verdicts_answers")
    audit(run, made, "verdicts", "failures")
    assert server.requests == asked, "what was answered, or refused for good, is never asked again"
    again = {row["failure_id"]: row for row in run.read("verdicts").to_pylist()}
    assert again == rows


def test_an_endpoint_that_is_down_stops_the_stage(run: Run, server: FaultServer) -> None:
    server.default = ""
    server.script = {"query": status(503)}
    with pytest.raises(RunError, match=r"verdicts_answers: 24 of 24 rows failed.*HTTP 503.*--redo verdicts_answers"):
        audit(run, config(language(server), budget=12), "verdicts", "failures")
    # It is up again: the failures of the server's sake were not kept.
    server.script = {}
    server.default = VALID
    run.redo("verdicts_answers")
    audit(run, config(language(server), budget=12), "verdicts", "failures")
    assert set(run.read("verdicts")["status"].to_pylist()) == {tables.OK}


def test_captions_are_edited_by_drafts_that_say_what_is_wrong_with_them(run: Run, server: FaultServer) -> None:
    audit(run, config({}, budget=12), "verdicts", "failures")
    captions = {row["caption_id"]: row["text"] for row in run.read("data/captions").to_pylist()}
    instruction = {"reason": "r", "feasible": True, "instruction": "turn everything upside down"}
    server.default = json.dumps(instruction)
    edits = {}
    for row in run.read("failures").to_pylist():
        if row["status"] == "ok" and row["direction"] == "i2t":
            source = captions[row["candidate_id"]]
            good = {"caption": f"{source} indoors", "changes": [{"before": "", "after": "indoors"}]}
            drafts = [{"caption": source, "changes": []}, good]
            word = json.dumps(f"The wrong caption: {json.dumps(source)}")[1:-1]
            edits[word] = says(json.dumps({"reason": "r", "feasible": True, "drafts": drafts}))
    # The longest first: one caption may begin like another.
    server.script = dict(sorted(edits.items(), key=lambda item: -len(item[0])))
    edit(run, config(language(server), budget=12), "edits", "verdicts", "failures", "embeddings", SPEC)
    rows = run.read("edits").to_pylist()
    assert len(rows) == 24
    for row in rows:
        if row["direction"] == "i2t":
            first, second = row["candidates"]
            assert (first["status"], first["reason"]) == (tables.REJECTED, "equal to its source")
            assert second["status"] == tables.OK and second["text"].endswith(" indoors")
        else:
            # The scene editor does not understand it, which is a reason too.
            assert row["instruction"] == "turn everything upside down" and row["status"] == tables.REJECTED
            assert row["reason"].startswith("editor: ")
    assert any(row["status"] == tables.OK and row["text"].endswith(" indoors") for row in rows)


def test_killed_half_way_only_the_missing_are_asked(run: Run, server: FaultServer) -> None:
    """The server answers 12 questions and holds the rest, so that the kill surely falls between."""
    made = language(server, pool={"rows_per_block": 24, "num_cpus": 0.5})
    made["endpoint"] |= {"at_once": 2, "timeout_s": 100.0}
    command = [sys.executable, "-m", "tests.integration.language_run", str(run.folder)]
    command.append(json.dumps({"language": made, "budget": 12}))
    environment = {**os.environ, "REPAIR_RAY_TEST_KEY": KEY}
    server.script = {"": in_turn(*[says(VALID)] * 12, until_the_client_goes)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as driver:
        _wait(lambda: server.requests > 12 and len(_stored(run)) == 12, "twelve answers")
        assert driver.poll() is None
        os.kill(driver.pid, signal.SIGKILL)
    _wait(lambda: server.open == 0, "the workers of the killed driver to end")
    asked = server.requests
    assert asked <= 14, "two at once: those that were held were never answered"
    server.script = {}
    subprocess.run(command, env=environment, check=True, capture_output=True, timeout=200)
    assert server.requests - asked == 24 - 12
    assert set(run.read("verdicts")["status"].to_pylist()) == {tables.OK}


def _wait(until: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 120
    while not until():
        assert time.monotonic() < deadline, f"waited two minutes for {what}"
        time.sleep(0.05)


def _stored(run: Run) -> set[str]:
    lines = [line for path in (run.folder / "answers").glob("*.jsonl") for line in path.read_text().splitlines()]
    return {json.loads(line)["question_id"] for line in lines}
