"""Graphs on a cluster of several nodes: where actors land, what is refused, and what a stage says while it waits.

GPUs are logical: nodes are told that they have some.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import ray
from ray.cluster_utils import Cluster
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from repair_ray import tables
from repair_ray.config import ClusterConfig, FaultConfig, PoolConfig, TrainingConfig
from repair_ray.finetune import PLAIN
from repair_ray.planning import plan
from repair_ray.run import Recipe, Run, RunError
from repair_ray.scheduling.cluster import nodes_of
from repair_ray.stages.graph import Step, run_graph
from repair_ray.stages.rows import Row, RowStage
from repair_ray.training.job import Job
from repair_ray.training.launch import train
from tests.test_pools import SPEC, config

pytestmark = [pytest.mark.integration, pytest.mark.cluster]

NUMBERS = tables.Table(
    "numbers",
    pa.schema([("id", pa.string()), ("place", pa.string()), ("status", pa.string()), ("reason", pa.string())]),
    "id",
    ("id",),
)
ROWS = 24
OBJECTS = 100 * 2**20
L4, H100 = {"accelerator_type:L4": 1}, {"accelerator_type:H100": 1}


class Where(RowStage):
    """Says where each row was, node and process; takes `seconds` for a row, and `loads` to start."""

    def setup(self, seconds: float, loads: float) -> None:
        time.sleep(loads)
        self.seconds = seconds
        context = ray.get_runtime_context()
        self.place = f"{context.get_node_id()} {context.get_actor_id()}"

    def process(self, rows: list[Row]) -> list[Row]:
        time.sleep(self.seconds * len(rows))
        return [{**row, "place": self.place, "status": tables.OK} for row in rows]


# The workers cannot import a test module, so its classes travel whole.
ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])


@ray.remote
class Holder:
    """Another job's actor, which holds what it was given."""

    def ready(self) -> bool:
        return True


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A head of two CPUs, and a node with an L4; tests add others."""
    made = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 2, "object_store_memory": OBJECTS, "include_dashboard": False}
    )
    made.add_node(num_cpus=2, num_gpus=1, resources=L4, object_store_memory=OBJECTS)
    ray.init(address=made.address, log_to_driver=False, logging_level=logging.ERROR)
    yield made
    ray.shutdown()
    made.shutdown()


@pytest.fixture
def h100(cluster: Cluster) -> Iterator[Any]:
    """A further node, with one H100."""
    node = cluster.add_node(num_cpus=2, num_gpus=1, resources=H100, object_store_memory=OBJECTS)
    yield node
    if node in cluster.worker_nodes:
        cluster.remove_node(node)


def graph(
    folder: Path, pool: PoolConfig, seconds: float = 0.0, key: str = "pool", loads: float = 0.0, **settings: Any
) -> list[Row]:
    run = Run(folder)
    columns = [pa.array([f"{i:02d}" for i in range(ROWS)]), *(pa.nulls(ROWS, pa.string()) for _ in range(3))]
    run_graph(
        run,
        "numbers",
        Recipe({}),
        NUMBERS,
        [Step(Where, NUMBERS.schema, {"seconds": seconds, "loads": loads}, pool, key)],
        lambda: pa.table(columns, schema=NUMBERS.schema),
        faults=settings.pop("faults", FaultConfig()),
        **settings,
    )
    return run.read("numbers").to_pylist()


def node_id(node: Any) -> str:
    return str(node.node_id)


def test_actors_land_on_the_gpu_that_is_asked_for(h100: Any, tmp_path: Path) -> None:
    found = graph(tmp_path, PoolConfig(num_cpus=0.5, num_gpus=1, accelerator_type="H100", memory_mb=50))
    assert len(found) == ROWS
    assert {row["place"].split()[0] for row in found} == {node_id(h100)}


def test_a_pool_grows_while_blocks_wait(cluster: Cluster, tmp_path: Path) -> None:
    pool = PoolConfig(actors=1, max_actors=3, num_cpus=0.5, rows_per_block=1)
    found = graph(tmp_path, pool, seconds=0.7)
    assert 2 <= len({row["place"].split()[1] for row in found}) <= 3


@pytest.mark.parametrize(
    ("pool", "expected"),
    [
        ({"num_gpus": 2}, "numbers needs 2 GPUs and the cluster has 1 GPUs; lower edit.pool.actors or edit.pool.num_g"),
        ({"num_gpus": 1, "accelerator_type": "A100"}, "edit.pool.accelerator_type=A100; the cluster has L4"),
        ({"num_cpus": 3}, "room for 0 of 1 actors of 3 CPUs and 0 GPUs; lower edit.pool.num_cpus"),
        ({"memory_mb": 10_000_000}, "lower edit.pool.actors or edit.pool.memory_mb"),
    ],
)
def test_what_cannot_be_placed_is_refused_at_once(
    cluster: Cluster, tmp_path: Path, pool: dict[str, Any], expected: str
) -> None:
    began = time.monotonic()
    with pytest.raises(RunError) as raised:
        graph(tmp_path, PoolConfig.model_validate(pool), key="edit.pool")
    assert expected in str(raised.value)
    assert "cluster.node_groups" in str(raised.value)
    assert time.monotonic() - began < 10


def test_training_that_cannot_be_placed_is_refused_at_once(cluster: Cluster, tmp_path: Path) -> None:
    training = TrainingConfig(workers=2, use_gpu=True)
    job = Job("round-1/training", str(tmp_path), str(tmp_path), None, SPEC, training, PLAIN, {}, 0)
    began = time.monotonic()
    with pytest.raises(RunError, match=r"needs 2 GPUs and the cluster has 1 GPUs; lower training\.workers"):
        train(job, lambda *_: None)
    assert time.monotonic() - began < 10


def test_the_plan_names_the_setting_that_is_too_large(cluster: Cluster) -> None:
    began = time.monotonic()
    made = plan(
        config(pool={"num_gpus": 1, "accelerator_type": "H100"}, edit={"pool": {"num_gpus": 0.5}}),
        nodes_of(ClusterConfig()),
    )
    assert time.monotonic() - began < 10
    assert {name for name, problem in made.problems.items() if problem.key == "pool.accelerator_type"} >= {
        "round-1/embeddings",
        "round-1/edits",
    }
    assert "data/images" not in made.problems
    assert list(made.causes) == ["round-1/embeddings"]


def wait_until_told(caplog: pytest.LogCaptureFixture, seconds: float) -> None:
    """Until the log says that actors wait for a node, or the time is over."""
    deadline = time.monotonic() + seconds
    while "wait for a node" not in caplog.text and time.monotonic() < deadline:
        time.sleep(0.2)


def test_a_stage_says_what_it_waits_for_and_goes_on(
    cluster: Cluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    holder = Holder.options(num_cpus=0, num_gpus=1).remote()
    assert ray.get(holder.ready.remote())

    def let_go() -> None:
        wait_until_told(caplog, 40)
        ray.kill(holder)

    thread = threading.Thread(target=let_go)
    thread.start()
    with caplog.at_level(logging.WARNING, logger="repair_ray"):
        found = graph(tmp_path, PoolConfig(num_gpus=1, num_cpus=0.5), faults=FaultConfig(stall_seconds=3))
    thread.join()
    assert len(found) == ROWS
    assert "1 of its actors wait for a node (1 actors of 0.5 CPUs and 1 GPUs; free in the cluster:" in caplog.text
    assert "0 GPUs)" in caplog.text and "lower pool.actors" in caplog.text


def test_an_actor_that_loads_for_long_does_not_wait_for_a_node(
    cluster: Cluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pool = PoolConfig(num_gpus=1, num_cpus=0.5)
    with caplog.at_level(logging.WARNING, logger="repair_ray"):
        graph(tmp_path, pool, loads=20.0, faults=FaultConfig(stall_seconds=10))
    assert "its actors have their nodes, and start or work" in caplog.text
    assert "wait for a node" not in caplog.text


def test_a_stage_that_waits_too_long_stops(cluster: Cluster, tmp_path: Path) -> None:
    holder = Holder.options(num_cpus=0, num_gpus=1).remote()
    assert ray.get(holder.ready.remote())
    began = time.monotonic()
    with pytest.raises(RunError, match=r"wait for a node .* stopped by faults\.stop_seconds=15"):
        graph(tmp_path, PoolConfig(num_gpus=1, num_cpus=0.5), faults=FaultConfig(stop_seconds=15))
    assert time.monotonic() - began < 45
    ray.kill(holder)


def test_a_lost_node_is_told_and_another_takes_its_place(
    cluster: Cluster, h100: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    other = cluster.add_node(num_cpus=2, num_gpus=1, resources=H100, object_store_memory=OBJECTS)
    there = NodeAffinitySchedulingStrategy(node_id(other), soft=False)
    holder = Holder.options(num_cpus=0, num_gpus=1, scheduling_strategy=there).remote()
    assert ray.get(holder.ready.remote())

    def lose_one_and_free_the_other() -> None:
        while not list((tmp_path / "numbers" / "half-made" / "rows").glob("*.parquet")):
            time.sleep(0.1)
        cluster.remove_node(h100, allow_graceful=False)
        wait_until_told(caplog, 60)
        ray.kill(holder)

    thread = threading.Thread(target=lose_one_and_free_the_other)
    thread.start()
    pool = PoolConfig(num_gpus=1, num_cpus=0.5, accelerator_type="H100", rows_per_block=2)
    with caplog.at_level(logging.WARNING, logger="repair_ray"):
        found = graph(tmp_path, pool, seconds=0.4, faults=FaultConfig(stall_seconds=4, stop_seconds=90))
    thread.join()
    assert "1 of its actors wait for a node" in caplog.text
    assert len(found) == ROWS
    assert node_id(other) in {row["place"].split()[0] for row in found}
    cluster.remove_node(other)


def test_nodes_that_a_platform_reports_count(cluster: Cluster) -> None:
    from ray._raylet import GcsClient
    from ray.core.generated.autoscaler_pb2 import ClusterConfig as Reported

    here = nodes_of(ClusterConfig())
    reported = Reported()
    group = reported.node_group_configs.add()
    group.name, group.max_count = "h100s", 3
    group.resources.update({"CPU": 2, "GPU": 1, "accelerator_type:H100": 1})
    GcsClient(address=cluster.address).report_cluster_config(reported.SerializeToString())
    try:
        found = nodes_of(ClusterConfig())
        # One node of two CPUs and one GPU is there, and counts as one of the group's three.
        assert found[: len(here)] == here
        assert [(n.name, n.cpus, n.gpus, n.accelerators, n.there) for n in found[len(here) :]] == [
            ("h100s", 2.0, 1.0, frozenset({"H100"}), False)
        ] * 2
    finally:
        GcsClient(address=cluster.address).report_cluster_config(Reported().SerializeToString())
