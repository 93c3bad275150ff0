"""A cluster that has shrunk to its head: a stage asks Ray's autoscaler for what it needs, and waits."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.integration.conftest import ROOT
from tests.integration.ray_cluster import RayCluster, ray_cluster

pytest.importorskip("aiohttp_cors", reason="needs ray[default]: pip install -e .[cluster]")

pytestmark = [pytest.mark.integration, pytest.mark.whole_runs, pytest.mark.cluster]

# A driver of its own: it holds one connection to Ray, to that cluster.
DRIVER = """
import json, sys, time
import ray
from repair_ray.config import PoolConfig
from repair_ray.run import RunError
from repair_ray.stages.graph import start_ray
from repair_ray.stages.nodes import require

def tried(actors, wait_s, **labels):
    begun = time.monotonic()
    try:
        require([PoolConfig(actors=actors, num_cpus=1, labels=labels)], "edits", wait_s, "lower pool.actors")
        return ["ok", time.monotonic() - begun]
    except RunError as error:
        return [str(error), time.monotonic() - begun]

start_ray()
made = {"before": ray.cluster_resources().get("CPU", 0), "at once": tried(2, 0), "waited": tried(2, 240, pool="grown")}
made["after"] = ray.cluster_resources().get("CPU", 0)
made["too much"] = tried(9, 5)
made["nowhere"] = tried(1, 0, pool="other")
print(json.dumps(made))
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    with ray_cluster((), cpus_per_worker=4, grows=True) as made:
        yield made


def test_it_waits_for_the_nodes_that_it_needs_and_no_longer(cluster: RayCluster) -> None:
    environment = {**cluster.variables, "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(
        [sys.executable, "-c", DRIVER], env=environment, capture_output=True, text=True, check=False, timeout=480
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    told = json.loads(ended.stdout.splitlines()[-1])
    assert told["before"] == 0
    assert told["at once"][0] == "edits needs 3 CPUs but the cluster has 0; lower pool.actors"
    assert told["waited"][0] == "ok" and told["after"] == 4
    assert told["nowhere"][0] == "edits needs 1 CPUs on nodes with pool=other but the cluster has 0; lower pool.actors"
    message, seconds = told["too much"]
    assert message == (
        "edits needs 10 CPUs but the cluster has 4 after 5 s of waiting (faults.nodes_wait_s); lower pool.actors"
    )
    assert 5 <= seconds < 60
