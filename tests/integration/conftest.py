"""A run so small that a test can make it whole, kill it and make it again."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import ray

from repair_ray.run import Run, find_files
from repair_ray.stages.graph import start_ray
from tests.engines.fault_server import FaultServer
from tests.integration.language_run import VALID

ROOT = Path(__file__).parents[2]
# Batches of 16 divide the 80 training scenes, so that equal compute can be met to a step of some forty items.
OVERRIDES = (
    "data.world.train=80",
    "data.world.validation=30",
    "data.world.test=40",
    "base.steps=12",
    "base.validate_every=6",
    "base.checkpoint_every=3",
    "mining.budget=150",
    # A retriever of so few steps confuses things that are far apart.
    "language.max_changes=9",
    "selection.min_gain=-1.0",
    "training.steps=24",
    "training.batch_size=16",
    "training.validate_every=12",
    "training.checkpoint_every=4",
    "controls=[vanilla_equal_compute]",
)


@dataclass
class SmallRun:
    """The command line of one small run, in an output folder of its own."""

    output: Path
    seconds: float = 0.0

    @property
    def folder(self) -> Path:
        return self.output / "small"

    def command(self, *extra: str) -> list[str]:
        program = [sys.executable, "-m", "repair_ray", "run", str(ROOT / "jobs" / "smoke.yaml")]
        return [*program, "name=small", f"output={self.output}", *OVERRIDES, *extra]

    def start(self, *extra: str, tag: str = "") -> subprocess.Popen[bytes]:
        """Start the command; `tag` marks its process and all that Ray starts below it."""
        with (self.output / "log.txt").open("ab") as log:
            return subprocess.Popen(
                self.command(*extra), stdout=log, stderr=log, cwd=ROOT, env={**os.environ, "REPAIR_RAY_TAG": tag}
            )

    def finish(self, *extra: str) -> subprocess.CompletedProcess[str]:
        """Run the command to its end."""
        begun = time.monotonic()
        ended = subprocess.run(self.command(*extra), capture_output=True, text=True, cwd=ROOT, timeout=900)
        self.seconds = time.monotonic() - begun
        return ended

    def manifests(self) -> dict[str, str]:
        """Every finished product with the text of its manifest."""
        found = find_files(self.folder, "manifest.json")
        return {path.parent.relative_to(self.folder).as_posix(): path.read_text() for path in found}

    def summary(self) -> dict[str, Any]:
        return json.loads((self.folder / "summary.json").read_text())


@pytest.fixture(scope="session")
def small_run(tmp_path_factory: pytest.TempPathFactory) -> SmallRun:
    """A finished run that nothing has disturbed. Tests only read it."""
    run = SmallRun(tmp_path_factory.mktemp("undisturbed"))
    ended = run.finish()
    assert ended.returncode == 0, ended.stderr[-3000:]
    return run


@pytest.fixture(scope="module")
def local_ray() -> Iterator[None]:
    """Ray in this process, for the tests of a module that drive stages themselves."""
    start_ray()
    yield
    ray.shutdown()


@pytest.fixture
def run(prepared: Path, tmp_path: Path) -> Run:
    """A copy of the run that a module has prepared."""
    shutil.copytree(prepared, tmp_path / "run")
    return Run(tmp_path / "run")


@pytest.fixture
def server() -> Iterator[FaultServer]:
    """An endpoint that judges everything `valid` until its script says otherwise."""
    made = FaultServer(VALID)
    yield made
    made.shutdown()
    made.server_close()
