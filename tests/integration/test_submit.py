"""The documented command from a clean clone, on a real cluster of several nodes: submit, stop, submit again."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from repair_ray.run import find_files
from tests.integration.conftest import OVERRIDES, ROOT
from tests.integration.ray_cluster import RayCluster, ray_cluster

pytest.importorskip("aiohttp_cors", reason="needs ray[default]: pip install -e .[cluster]")

pytestmark = [pytest.mark.integration, pytest.mark.whole_runs, pytest.mark.cluster]

SECONDS = 900.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    """A head that takes no work, and two workers, of which one is for training."""
    with ray_cluster(("stages", "training"), cpus_per_worker=4) as made:
        yield made


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a person has who has just cloned the repository."""
    folder = tmp_path_factory.mktemp("clone") / "repair_ray"
    subprocess.run(["git", "clone", "-q", str(ROOT), str(folder)], check=True)
    return folder


class Submitter:
    """Runs `python jobs/submit.py jobs/smoke.yaml ...` in a clone, with a run of its own on the shared folder."""

    def __init__(self, cluster: RayCluster, clone: Path, shared: Path) -> None:
        self._clone, self._log = clone, shared / "submit.log"
        self.run = shared / "runs" / "small"
        # Without edits: of the graphs of a round, and of its trainings, one or two are enough here.
        settings = ["name=small", f"output={shared / 'runs'}", *OVERRIDES, "strategy=vanilla", "controls=none"]
        settings += [
            "pool.labels={pool: stages}",
            *(f"{one}.labels={{pool: training}}" for one in ("base", "training")),
        ]
        self._command = [sys.executable, "jobs/submit.py", "jobs/smoke.yaml", *settings]
        self._env = {**cluster.variables, "RAY_API_SERVER_ADDRESS": cluster.dashboard}
        del self._env["RAY_ADDRESS"]

    def start(self, *options: str) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            return subprocess.Popen([*self._command, *options], stdout=log, stderr=log, cwd=self._clone, env=self._env)

    def call(self, *options: str, **variables: str) -> subprocess.CompletedProcess[str]:
        env = {**self._env, **variables}
        return subprocess.run(
            [*self._command, *options], capture_output=True, text=True, cwd=self._clone, env=env, timeout=SECONDS
        )

    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def manifests(self) -> dict[str, bytes]:
        found = find_files(self.run, "manifest.json")
        return {path.parent.relative_to(self.run).as_posix(): path.read_bytes() for path in found}


def test_submitted_stopped_and_submitted_again(cluster: RayCluster, clone: Path, tmp_path: Path) -> None:
    job = Submitter(cluster, clone, tmp_path)

    following = job.start()
    wait_for(following, lambda: len(job.manifests()) >= 1, job.log)
    refused = job.call()
    assert refused.returncode == 1 and "small-1 is RUNNING: two jobs cannot make one run" in refused.stderr

    stopped = job.call("--stop")
    assert stopped.returncode == 0 and "small-1: STOPPED" in stopped.stdout, stopped.stderr
    assert following.wait(120) == 1 and "small-1: STOPPED" in job.log()
    finished = job.manifests()
    assert finished and not (job.run / "summary.json").exists()

    again = job.call()
    assert again.returncode == 0, again.stdout[-2000:] + again.stderr[-2000:]
    assert "small-2: submitted, with" in again.stdout and "small-2: SUCCEEDED" in again.stdout
    assert "i2t R@1" in again.stdout  # the driver's own closing line
    after = job.manifests()
    assert {name: after[name] for name in finished} == finished and len(after) > len(finished)
    summary = json.loads((job.run / "summary.json").read_text())
    assert summary["rounds"][0]["metrics"]["i2t"]["n"] == 40

    listed = job.call("--status", COLUMNS="200").stdout
    assert [line.split("│")[2].strip() for line in listed.splitlines() if "small-" in line] == ["STOPPED", "SUCCEEDED"]


def test_a_driver_that_fails_says_why_here(cluster: RayCluster, clone: Path, tmp_path: Path) -> None:
    job = Submitter(cluster, clone, tmp_path)
    ended = job.call("name=absent", "data.world=null", "data.path=/nowhere/pairs.parquet", "edit.image_editor=none")
    assert ended.returncode == 1
    assert "absent-1: FAILED" in ended.stdout and "/nowhere/pairs.parquet" in ended.stdout


def test_ray_s_own_command_finds_package_and_config(cluster: RayCluster, clone: Path, tmp_path: Path) -> None:
    """As the head of jobs/submit.py and cluster/README.md write it."""
    ray = [sys.executable, "-m", "ray.scripts.scripts", "job", "submit", "--submission-id", "plain-1"]
    driver = ["python", "-m", "repair_ray", "run", "jobs/smoke.yaml", f"output={tmp_path}", "name=plain"]
    settings = ["data.world=null", "data.path=/nowhere/pairs.parquet", "edit.image_editor=none"]
    ended = subprocess.run(
        [*ray, "--working-dir", ".", "--", *driver, *settings],
        capture_output=True,
        text=True,
        check=False,
        cwd=clone,
        env={**cluster.variables, "RAY_API_SERVER_ADDRESS": cluster.dashboard},
        timeout=SECONDS,
    )
    assert ended.returncode == 1
    assert "/nowhere/pairs.parquet" in ended.stdout + ended.stderr


def test_without_the_token_nothing_is_submitted(cluster: RayCluster, clone: Path, tmp_path: Path) -> None:
    job = Submitter(cluster, clone, tmp_path)
    ended = job.call("name=stranger", RAY_AUTH_TOKEN="0" * 64)
    assert ended.returncode == 1 and "Traceback" not in ended.stderr
    assert "RAY_AUTH_TOKEN" in ended.stderr


def wait_for(process: subprocess.Popen[bytes], ready: Callable[[], bool], log: Callable[[], str]) -> None:
    deadline = time.monotonic() + SECONDS
    while not ready():
        assert process.poll() is None, log()[-3000:]
        assert time.monotonic() < deadline, log()[-3000:]
        time.sleep(0.2)
