"""The judge asked once more in the other order: one that goes by the order is found out, and nobody is asked twice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from repair_ray import tables
from repair_ray.cli import app
from repair_ray.run import Recipe, Run, RunError, write_json
from repair_ray.stages.audit import audit
from repair_ray.stages.consistency import consistency
from tests.engines.fault_server import FaultServer, Handler, Reply, says
from tests.integration.language_run import VALID, config, prepare

pytestmark = [pytest.mark.integration, pytest.mark.whole_runs, pytest.mark.usefixtures("local_ray")]

BENIGN = json.dumps({"reason": "r", "mismatches": [], "judgement": "benign_match", "confidence": 0.8})


@pytest.fixture(scope="module")
def prepared(local_ray: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("consistency") / "run"
    prepare(folder, config({}, budget=8))
    return folder


def language(server: FaultServer, **changes: Any) -> dict[str, Any]:
    endpoint = {"url": server.url, "retries": 1, "timeout_s": 5.0}
    pool = {"rows_per_block": 8, "num_cpus": 0.5}
    return {"backend": "openai", "model": "m", "endpoint": endpoint, "pool": pool, **changes}


def question(body: dict[str, Any]) -> str:
    text: str = body["messages"][-1]["content"]
    return text


def chooses(valid_if: Any) -> Reply:
    """An endpoint that judges `valid` where the question is so, `benign_match` elsewhere."""

    def reply(handler: Handler, body: dict[str, Any], number: int) -> None:
        says(VALID if valid_if(question(body)) else BENIGN)(handler, body, number)

    return reply


def query_first(text: str) -> bool:
    return text.startswith("The query is")


def about_an_image(text: str) -> bool:
    return "The query is an image" in text


def test_a_judge_that_goes_by_the_order_contradicts_itself(run: Run, server: FaultServer) -> None:
    server.script = {"": chooses(query_first)}
    made = config(language(server), budget=8)
    audit(run, made, "verdicts", "failures")
    assert set(run.read("verdicts")["judgement"].to_pylist()) == {"valid"}
    found = consistency(run, made, "failures", "verdicts")
    assert (found["n"], found["no_answer"], found["total"]["n"]) == (16, 0, 16)
    assert found["total"]["equal"]["percent"] == 0.0 and found["total"]["kappa"] == 0.0
    assert found["total"]["from_valid"]["percent"] == 100.0 and found["total"]["to_valid"]["of"] == 0
    assert (found["i2t"]["n"], found["t2i"]["n"]) == (8, 8)
    assert set(run.read(found["swapped"])["judgement"].to_pylist()) == {"benign_match"}

    # The same by the command line, which finds the verdicts by the edits that were made from them.
    made_from = {"failures": "failures", "verdicts": "verdicts"}
    run.ready("round-1/edits", Recipe({}))
    run.commit("round-1/edits", Recipe({}), tables.EDITS, tables.EDITS.schema.empty_table(), 0.0, made_from=made_from)
    named = made.model_copy(update={"output": str(run.folder.parent), "name": run.folder.name})
    for path in (run.folder / "config.json", run.folder / "config.yaml"):
        write_json(path, named.model_dump(mode="json"))
    out = run.folder / "out.json"
    ended = CliRunner().invoke(app, ["evaluate", "consistency", str(run.folder / "config.yaml"), "--json", str(out)])
    assert ended.exit_code == 0, ended.output
    assert json.loads(out.read_text()) == found
    assert "0.0 % of 16" in ended.stdout and "0 of 16 had no answer" in " ".join(ended.stdout.split())


def test_a_judge_that_reads_is_consistent_and_is_asked_once(run: Run, server: FaultServer) -> None:
    server.script = {"": chooses(about_an_image)}
    made = config(language(server), budget=8)
    audit(run, made, "verdicts", "failures")
    asked = server.requests
    few = consistency(run, made, "failures", "verdicts", n=6, seed=3)
    assert few["n"] == 6 and server.requests == asked + 6
    found = consistency(run, made, "failures", "verdicts")
    assert found["total"]["equal"] == {"hits": 16, "of": 16, "percent": 100.0, "interval": [80.639, 100.0]}
    assert found["total"]["kappa"] == 1.0 and found["i2t"]["kappa"] is None
    assert server.requests == asked + 16, "the six were not asked again"
    assert consistency(run, made, "failures", "verdicts") == found
    run.redo("verdicts")
    audit(run, made, "verdicts", "failures")
    assert run.manifest(found["swapped"]) is None, "it was a comparison with verdicts that are gone"
    assert consistency(run, made, "failures", "verdicts") == found
    assert server.requests == asked + 16
    firsts = [query_first(question(body)) for body in server.bodies]
    assert firsts.count(True) == firsts.count(False) == 16


def test_no_answer_in_the_other_order_is_counted(run: Run, server: FaultServer) -> None:
    made = config(language(server), budget=8)
    audit(run, made, "verdicts", "failures")
    server.script = {'"The retrieved image has the captions': says("prose")}
    found = consistency(run, made, "failures", "verdicts")
    assert (found["no_answer"], found["total"]["n"], found["t2i"]["n"]) == (8, 8, 0)
    assert found["t2i"]["equal"]["percent"] is None and found["total"]["kappa"] is None
    statuses = run.read(found["swapped"])["status"].to_pylist()
    assert statuses.count(tables.ERROR) == 8
    json.dumps(found, allow_nan=False)


def test_only_the_judge_itself_is_asked(run: Run, server: FaultServer) -> None:
    made = config(language(server), budget=8)
    with pytest.raises(RunError, match="verdicts does not exist yet"):
        consistency(run, made, "failures", "verdicts")
    audit(run, config({}, budget=8), "verdicts", "failures")
    with pytest.raises(RunError, match=r"verdicts in .* come from no model, and the config's judge is m"):
        consistency(run, made, "failures", "verdicts")
    run.redo("verdicts")
    audit(run, made, "verdicts", "failures")
    other = config(language(server, temperature=0.5), budget=8)
    with pytest.raises(RunError, match=r"language.temperature was 0.0, is now 0.5"):
        consistency(run, other, "failures", "verdicts")
    asked = server.requests
    assert "no order to swap" in consistency(run, config({}, budget=8), "failures", "verdicts")["skipped"]
    assert server.requests == asked
