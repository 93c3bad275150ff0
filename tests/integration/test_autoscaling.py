"""A cluster that starts its nodes when they are asked for: `cluster.node_groups` says what may come.

Ray's fake provider starts the nodes as processes of this machine.
"""

from __future__ import annotations

import json
import logging
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
import ray
from ray.autoscaler._private.fake_multi_node.node_provider import FAKE_HEAD_NODE_ID, FAKE_HEAD_NODE_TYPE
from ray.cluster_utils import Cluster

from repair_ray import tables
from repair_ray.config import ClusterConfig, FaultConfig, PoolConfig
from repair_ray.run import Recipe, Run, RunError
from repair_ray.scheduling.cluster import nodes_of
from repair_ray.stages.graph import Step, run_graph
from repair_ray.stages.rows import Row, RowStage

pytestmark = [pytest.mark.integration, pytest.mark.whole_runs, pytest.mark.cluster]

WORDS = tables.Table(
    "words", pa.schema([("id", pa.string()), ("status", pa.string()), ("reason", pa.string())]), "id", ("id",)
)
MAY_COME = ClusterConfig.model_validate({"node_groups": [{"max_nodes": 1, "cpus": 2, "gpus": 1}]})
COMMANDS = (
    "cluster_synced_files",
    "initialization_commands",
    "setup_commands",
    "head_setup_commands",
    "worker_setup_commands",
    "head_start_ray_commands",
    "worker_start_ray_commands",
)
POOL = PoolConfig(num_cpus=0.5, num_gpus=1)


class Pass(RowStage):
    """Lets every row pass."""

    def setup(self) -> None:
        """Nothing to load."""

    def process(self, rows: list[Row]) -> list[Row]:
        return [{**row, "status": tables.OK} for row in rows]


# The workers cannot import a test module, so its classes travel whole.
ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])


@pytest.fixture(scope="module")
def scaling(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A head of two CPUs, and an autoscaler that may start one node with a GPU."""
    with socket.socket() as held:
        held.bind(("", 0))
        port = held.getsockname()[1]
    described = {
        "cluster_name": "fake",
        "provider": {"type": "fake_multinode", "gcs_address": f"{ray.util.get_node_ip_address()}:{port}"},
        "max_workers": 1,
        "upscaling_speed": 1.0,
        "idle_timeout_minutes": 5,
        "head_node_type": FAKE_HEAD_NODE_TYPE,
        "available_node_types": {
            FAKE_HEAD_NODE_TYPE: {"resources": {"CPU": 2}, "node_config": {}, "max_workers": 0},
            "gpu": {"resources": {"CPU": 2, "GPU": 1}, "node_config": {}, "min_workers": 0, "max_workers": 1},
        },
        **{key: {} for key in ("auth", "docker", "file_mounts")},
        **{key: [] for key in COMMANDS},
    }
    path = tmp_path_factory.mktemp("autoscaler") / "cluster.json"
    path.write_text(json.dumps(described))
    head = {
        "num_cpus": 2,
        "include_dashboard": False,
        "autoscaling_config": str(path),
        "gcs_server_port": port,
        # As `ray start --head` does for the fake provider, which knows the head by this id.
        "env_vars": {"RAY_OVERRIDE_NODE_ID_FOR_TESTING": FAKE_HEAD_NODE_ID},
    }
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("RAY_FAKE_CLUSTER", "1")
        environment.setenv("AUTOSCALER_UPDATE_INTERVAL_S", "1")
        made = Cluster(initialize_head=True, head_node_args=head)
        ray.init(address=made.address, log_to_driver=False, logging_level=logging.ERROR)
        yield made
        ray.shutdown()
        made.shutdown()


def graph(folder: Path, cluster: ClusterConfig) -> int:
    run = Run(folder)
    rows = pa.table([pa.array(["a", "b"]), *(pa.nulls(2, pa.string()) for _ in range(2))], schema=WORDS.schema)
    run_graph(
        run,
        "words",
        Recipe({}),
        WORDS,
        [Step(Pass, WORDS.schema, {}, POOL)],
        lambda: rows,
        faults=FaultConfig(stop_seconds=60),
        cluster=cluster,
    )
    return len(run.read("words"))


def test_a_node_that_is_not_there_yet_counts_and_comes(scaling: Cluster, tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"needs 1 GPUs and the cluster has 0 GPUs; .* cluster\.node_groups"):
        graph(tmp_path, ClusterConfig())
    assert [(node.there, node.gpus) for node in nodes_of(MAY_COME)] == [(True, 0), (False, 1)]
    assert graph(tmp_path, MAY_COME) == 2
    # Now it is there, and is not counted twice.
    assert [(node.there, node.gpus) for node in nodes_of(MAY_COME)] == [(True, 0), (True, 1)]
