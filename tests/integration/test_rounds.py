"""Several rounds of a small run: killed between and inside them, stopped by a budget, given more, taken back."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from repair_ray.run import Run
from tests.integration.same_runs import check_same_tables, check_same_training

pytestmark = [pytest.mark.integration, pytest.mark.whole_runs, pytest.mark.chaos]

SETTINGS = ("mining.keep=above_gt", "training.steps=12", "controls=none", "selection.min_scaffold=-1.0")
ROUNDS = 3


@pytest.fixture(scope="module")
def rounds(small_run: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Three rounds that nothing has disturbed. Tests only read it."""
    run = type(small_run)(tmp_path_factory.mktemp("rounds"))
    ended = run.finish(*SETTINGS, f"rounds={ROUNDS}")
    assert ended.returncode == 0, ended.stderr[-3000:]
    return run


@pytest.fixture
def copied(rounds: Any, tmp_path: Path) -> Any:
    run = type(rounds)(tmp_path)
    shutil.copytree(rounds.folder, run.folder)
    return run


def test_each_round_works_on_new_failures_and_keeps_earlier_repairs(rounds: Any) -> None:
    run, summary = Run(rounds.folder), rounds.summary()
    assert [len(summary["rounds"]), summary["result"]] == [3, {"round": 3, "reason": "rounds.number=3 are done"}]
    worked: set[str] = set()
    accepted = 0
    for number, made in enumerate(summary["rounds"], start=1):
        edits = run.read(f"round-{number}/edits").to_pylist()
        new = {row["failure_id"] for row in run.read(f"round-{number}/verdicts", ["failure_id"]).to_pylist()}
        assert new and not new & worked
        trained = (run.manifest(f"round-{number}/training") or {})["corrected"]
        found = sum(row["status"] == "ok" for row in edits)
        accepted += found
        assert found and trained == accepted
        if number > 1:
            repairs = run.read(f"round-{number}/repairs").to_pylist()
            assert len(repairs) == accepted - found
            still = sum(row["still_fails"] for row in repairs)
            assert still == sum(part["still_failing"] for one in made["rechecked"].values() for part in one.values())
        worked |= new
    assert set(summary["left"]["mined"]) == {"i2t", "t2i"}
    assert run.manifest("round-4/failures") and not run.manifest("round-4/verdicts")


def test_killed_between_and_inside_rounds(rounds: Any, tmp_path: Path) -> None:
    run = type(rounds)(tmp_path)
    for cue in ("round-1/metrics/manifest.json", "round-2/training/items", "round-3/edits/half-made/rows"):
        process = run.start(*SETTINGS, f"rounds={ROUNDS}")
        while process.poll() is None and not (run.folder / cue).exists():
            time.sleep(0.05)
        assert process.poll() is None, (tmp_path / "log.txt").read_text()[-3000:]
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    ended = run.finish(*SETTINGS, f"rounds={ROUNDS}")
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert set(run.manifests()) == set(rounds.manifests())
    assert check_same_tables(Run(rounds.folder), Run(run.folder)) > 20
    for number in range(1, ROUNDS + 1):
        check_same_training(*(found.folder / f"round-{number}/training" for found in (rounds, run)))
    assert run.summary()["rounds"] == rounds.summary()["rounds"]


def test_a_budget_ends_it_and_a_larger_one_goes_on(copied: Any, rounds: Any) -> None:
    spent = rounds.summary()["spent"]["image_edits"]
    assert spent > 0
    ended = copied.finish(*SETTINGS, "rounds=9", "rounds.budget.image_edits=1")
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert len(copied.summary()["rounds"]) == 1
    assert "ended with round 1: rounds.budget.image_edits=1 is spent" in ended.stdout
    before = copied.manifests()
    ended = copied.finish(*SETTINGS, "rounds=3", f"rounds.budget.image_edits={spent + 1}")
    assert ended.returncode == 0 and copied.manifests() == before
    assert len(copied.summary()["rounds"]) == 3


def test_taken_back_to_a_round_and_made_again(copied: Any, rounds: Any) -> None:
    command = [sys.executable, "-m", "repair_ray", "rollback", str(copied.folder)]
    ended = subprocess.run([*command, "7"], capture_output=True, text=True)
    assert ended.returncode != 0 and "no finished round 7" in ended.stderr
    ended = subprocess.run([*command, "2"], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert not any(name.startswith(("round-3", "round-4")) for name in copied.manifests())
    # What holds from the first round on cannot be changed any more, and a later round can.
    ended = copied.finish(*SETTINGS, f"rounds={ROUNDS}", "rounds.fixed_weight=0.5")
    assert ended.returncode != 0 and "fixed_weight was 1.0, is now 0.5" in ended.stderr
    ended = copied.finish(*SETTINGS, f"rounds={ROUNDS}", "rounds.changes={3: {mining: {budget: 10}}}")
    assert ended.returncode == 0, ended.stderr[-3000:]
    made = [round_["failures"] for round_ in copied.summary()["rounds"]]
    assert made[:2] == [round_["failures"] for round_ in rounds.summary()["rounds"]][:2]
    assert made[2] == {"i2t": 10, "t2i": 10}
