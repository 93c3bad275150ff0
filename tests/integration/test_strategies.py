"""Whole rounds that start or go otherwise than the demo: a retriever with weights, random pairs as the strategy."""

from __future__ import annotations

from typing import Any

import pytest

from repair_ray.run import Run

pytestmark = [pytest.mark.integration, pytest.mark.whole_runs]

SHORT = ("training.steps=6", "training.validate_every=6", "mining.budget=40", "edit.candidates=1")


def test_random_pairs_as_the_strategy_with_mined_pairs_as_control(
    small_run: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    run = type(small_run)(tmp_path_factory.mktemp("agnostic"))
    ended = run.finish(*SHORT, "base.steps=6", "strategy=error_agnostic", "controls=[mined]")
    assert ended.returncode == 0, ended.stderr[-3000:]
    tables = Run(run.folder)
    assert tables.made_from("round-1/edits")["failures"] == "round-1/random_failures"
    assert tables.made_from("controls/mined/edits")["failures"] == "round-1/failures"
    drawn = {row["failure_id"] for row in tables.read("round-1/random_failures").to_pylist()}
    assert {row["failure_id"] for row in tables.read("round-1/random_verdicts").to_pylist()} == drawn
    made = run.summary()["rounds"][0]
    assert sum(made["failures"].values()) == len(drawn) and sum(made["verdicts"].values()) == len(drawn)
    assert made["truth"]["audit_precision"] is not None


def test_a_retriever_with_weights_is_repaired_and_other_weights_are_refused(
    small_run: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    base = small_run.folder / "base/training/model.safetensors"
    run = type(small_run)(tmp_path_factory.mktemp("weights"))
    settings = (*SHORT, "base=null", "controls=none", "retriever.precision=bf16")
    ended = run.finish(*settings, f"retriever.pretrained={base}")
    assert ended.returncode == 0, ended.stderr[-3000:]
    made, undisturbed = run.summary(), small_run.summary()
    # The base run's own weights, embedded in half precision: its figures within that precision.
    for direction in ("i2t", "t2i"):
        ours, theirs = (s["base"]["metrics"][direction]["r@10"] for s in (made, undisturbed))
        assert ours == pytest.approx(theirs, abs=3)
    other = small_run.folder / "round-1/training/model.safetensors"
    refused = run.finish(*settings, f"retriever.pretrained={other}")
    assert refused.returncode == 2 and "round-1/embeddings" in refused.stderr
    assert "retriever.weights was 'sha256:" in refused.stderr
    assert run.summary()["config"]["retriever"]["pretrained"] == str(base)
