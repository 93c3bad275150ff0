"""`kill -9` of the driver at random moments, the same command again: the tables of a run that nothing has disturbed."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from repair_ray.run import Run
from tests.integration.same_runs import check_same_tables, check_same_training

pytestmark = [pytest.mark.integration, pytest.mark.whole_runs, pytest.mark.chaos]

KILLS = int(os.environ.get("REPAIR_RAY_CHAOS_KILLS", "3"))
SEED = int(os.environ.get("REPAIR_RAY_CHAOS_SEED", "0"))
STARTUP = 5.0
ORPHANS_LIVE = 90.0  # Ray's own agents take half a minute to notice
TRAININGS = ("base/training", "round-1/training", "controls/vanilla_equal_compute/training")


@pytest.fixture(scope="module")
def killed_run(small_run: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The same small run, killed at random moments and started again each time."""
    run = type(small_run)(tmp_path_factory.mktemp("killed"))
    rng = random.Random(SEED)
    products = len(small_run.manifests())
    kills = 0
    for attempt in range(KILLS):
        process = run.start(tag=f"{run.output}-{attempt}")
        # Most of a short run is starting up, so the kills are dealt out over its products, each at a random moment.
        _wait(process, lambda due=attempt * products // KILLS: len(run.manifests()) >= due)
        moment = rng.uniform(STARTUP, STARTUP + small_run.seconds / 12)
        try:
            code = process.wait(moment)
        except subprocess.TimeoutExpired:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            kills += 1
            print(f"kill {kills}, {moment:.1f} s after its cue; finished: {len(run.manifests())} of {products}")
        else:
            assert code == 0, (run.output / "log.txt").read_text()[-3000:]
            break
    assert kills > 0
    ended = run.finish()
    assert ended.returncode == 0, ended.stderr[-3000:]
    return run


def test_ray_goes_with_its_driver(killed_run: Any) -> None:
    """What Ray had started below a killed driver ends by itself; no driver waited for that before it went on."""
    deadline = time.monotonic() + ORPHANS_LIVE
    while left := _tagged(str(killed_run.output)):
        assert time.monotonic() < deadline, f"processes outlive their driver: {left}"
        time.sleep(0.5)


def test_the_same_products(small_run: Any, killed_run: Any) -> None:
    assert set(killed_run.manifests()) == set(small_run.manifests())
    assert not list(killed_run.folder.rglob("half-made"))
    assert not list(killed_run.folder.rglob("begun.json"))


def test_every_table_row_for_row(small_run: Any, killed_run: Any) -> None:
    assert check_same_tables(Run(small_run.folder), Run(killed_run.folder)) == 12


def test_training_goes_on_and_repeats_nothing(small_run: Any, killed_run: Any) -> None:
    for name in TRAININGS:
        check_same_training(small_run.folder / name, killed_run.folder / name)


def test_metrics_agree(small_run: Any, killed_run: Any) -> None:
    left, right = small_run.summary(), killed_run.summary()
    assert right["base"] == left["base"]
    for key in ("failures", "verdicts", "error_types", "edits", "truth", "metrics"):
        assert right["rounds"][0][key] == left["rounds"][0][key]
    assert right["controls"] == left["controls"]


def _wait(process: subprocess.Popen[bytes], ready: Callable[[], bool]) -> None:
    while process.poll() is None and not ready():
        time.sleep(0.1)


def _tagged(tag: str) -> list[str]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if f"REPAIR_RAY_TAG={tag}".encode() in (process / "environ").read_bytes():
                found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")[:100])
        except OSError:
            continue
    return found
