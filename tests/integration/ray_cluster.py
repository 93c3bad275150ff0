"""A Ray cluster of several nodes on this machine: processes, ports and folders of its own, and nothing left of it.

Several clusters may run on one machine at a time, so that `ray stop`, which ends all of them, is never used.
"""

from __future__ import annotations

import ctypes
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

START_SECONDS = 240.0
TRIES = 3
TAG = "REPAIR_RAY_CLUSTER"


@dataclass
class RayCluster:
    """A running cluster; `dashboard` is where jobs are submitted, `address` where drivers connect."""

    folder: Path
    dashboard: str
    address: str
    variables: dict[str, str]
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self, *arguments: str) -> None:
        """Start a node and keep its process, which stays in the foreground and ends the node with itself."""
        with (self.folder / "nodes.log").open("ab") as log:
            self.processes.append(
                subprocess.Popen(
                    [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", *arguments],
                    stdout=log,
                    stderr=log,
                    env=self.variables,
                    preexec_fn=_go_with_parent,
                    start_new_session=True,
                )
            )

    def nodes(self) -> int:
        """Nodes that are alive, by the dashboard; 0 where it does not answer."""
        token = {"Authorization": f"Bearer {self.variables['RAY_AUTH_TOKEN']}"}
        try:
            with urllib.request.urlopen(
                urllib.request.Request(f"{self.dashboard}/api/v0/nodes", headers=token)
            ) as answer:
                listed = json.load(answer)["data"]["result"]["result"]
        except (OSError, KeyError, TypeError):
            return 0
        return sum(node["state"] == "ALIVE" for node in listed)

    def wait(self, nodes: int, may_end: bool = False) -> bool:
        """Wait for so many nodes; False where the last one ended instead, and may."""
        deadline = time.monotonic() + START_SECONDS
        while self.nodes() < nodes:
            if self.processes[-1].poll() is not None:
                if may_end:
                    self.processes.pop()
                    return False
                raise RuntimeError(f"a node ended with {self.processes[-1].returncode}:\n{self.log()}")
            if time.monotonic() > deadline:
                raise TimeoutError(f"{nodes} nodes did not come within {START_SECONDS:g} s:\n{self.log()}")
            time.sleep(0.5)
        return True

    def log(self) -> str:
        return (self.folder / "nodes.log").read_text(errors="replace")[-4000:]

    def close(self) -> None:
        """End every process of this cluster, by its tag; those of other clusters have another."""
        for process in self.processes:
            process.terminate()
        deadline = time.monotonic() + 20
        while _tagged(self.variables[TAG]) and time.monotonic() < deadline:
            time.sleep(0.2)
        for pid in _tagged(self.variables[TAG]):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        for process in self.processes:
            process.wait(30)


@contextmanager
def ray_cluster(pools: tuple[str, ...], cpus_per_worker: int) -> Iterator[RayCluster]:
    """A head without CPUs for work, with a dashboard, and a worker with the label `pool` for each name in `pools`.

    All of it is gone at the end, whatever happened.
    """
    # Short, as the paths of Ray's sockets have a limit.
    with tempfile.TemporaryDirectory(prefix="rc-", dir="/tmp", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        gcs, dashboard = _free_port(), _free_port()
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
        clean = {key: value for key, value in os.environ.items() if not key.startswith(("RAY_", "PYTHONPATH"))}
        environment = {
            **clean,
            "PATH": path,
            TAG: name,
            # A driver that finds several clusters on its machine would have to guess.
            "RAY_ADDRESS": f"127.0.0.1:{gcs}",
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": secrets.token_hex(32),
            # Of the provider for tests; elsewhere they mean nothing.
            "RAY_FAKE_CLUSTER": "1",
            "AUTOSCALER_UPDATE_INTERVAL_S": "1",
        }
        cluster = RayCluster(folder, f"http://127.0.0.1:{dashboard}", f"127.0.0.1:{gcs}", environment)
        common = ("--node-ip-address=127.0.0.1", "--object-store-memory=150000000", "--disable-usage-stats")
        try:
            cluster.start(
                "--head",
                f"--port={gcs}",
                "--num-cpus=0",
                "--include-dashboard=true",
                "--dashboard-host=127.0.0.1",
                f"--dashboard-port={dashboard}",
                f"--dashboard-agent-listen-port={_free_port()}",
                f"--ray-client-server-port={_free_port()}",
                f"--temp-dir={folder}/ray",
                *common,
            )
            cluster.wait(1)
            # One by one, as a node gives up after 30 s, which a busy machine may need; then it is started again.
            for number, pool in enumerate(pools):
                for left in reversed(range(TRIES)):
                    agent = f"--dashboard-agent-listen-port={_free_port()}"
                    own = (f"--num-cpus={cpus_per_worker}", f"--labels=pool={pool}", agent)
                    cluster.start(f"--address=127.0.0.1:{gcs}", *own, *common)
                    if cluster.wait(number + 2, may_end=left > 0):
                        break
            yield cluster
        finally:
            cluster.close()


def _go_with_parent() -> None:
    """In a node's process, before it starts: SIGTERM when the tests die, also by a signal (Linux)."""
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG


def _free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _tagged(tag: str) -> list[int]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if f"{TAG}={tag}".encode() in (process / "environ").read_bytes().split(b"\0"):
                found.append(int(process.name))
        except OSError:
            continue
    return found
