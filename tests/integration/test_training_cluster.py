"""Training on two nodes: the weights of one process, also where workers, nodes and checkpoints are lost."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import ray
import torch
from pyarrow import fs
from ray.cluster_utils import Cluster
from torch import Tensor

from repair_ray.engines.encoder import build_model
from repair_ray.engines.retriever import RetrieverSpec
from repair_ray.training.job import STATE_FOLDER, discard_state
from tests.integration.training_job import SEED, STEPS, make_job, steps_done, train_alone, train_on_ray

pytestmark = [pytest.mark.integration, pytest.mark.whole_runs, pytest.mark.cluster]

CPUS = 2  # of a node: a worker reserves one and a half of the four that there are, so that no node takes two workers


@pytest.fixture(scope="module")
def cluster(bucket: str) -> Iterator[Cluster]:
    """A head without CPUs, and two nodes."""
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    for _ in range(2):
        made.add_node(num_cpus=CPUS)
    ray.init(address=made.address, log_to_driver=False, logging_level="ERROR")
    made.wait_for_nodes()
    yield made
    ray.shutdown()
    made.shutdown()


@pytest.fixture(scope="module")
def undisturbed(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tensor]:
    """The weights that two workers on two nodes leave."""
    job = make_job(tmp_path_factory.mktemp("undisturbed"))
    weights = train_on_ray(job)
    nodes = [{record["node"] for start in steps_done(job, rank) for record in start} for rank in range(2)]
    assert len(nodes[0]) == len(nodes[1]) == 1 and nodes[0] != nodes[1]
    return weights


def check_close(weights: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    """Equal but for the order of sums, which Adam makes more of where a gradient is next to nothing."""
    start = build_model(RetrieverSpec("tiny-64"), "cpu", SEED).state_dict()
    assert weights.keys() == expected.keys()
    moved = torch.cat([(expected[name] - start[name]).flatten() for name in expected])
    apart = torch.cat([(weights[name] - expected[name]).flatten() for name in expected])
    assert moved.norm() > 1
    assert apart.norm() < 0.02 * moved.norm()
    assert apart.abs().median() < 1e-6


def check_same(weights: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert weights.keys() == expected.keys()
    for name, value in expected.items():
        assert torch.equal(weights[name], value), name


def test_two_nodes_give_the_weights_of_one_process(undisturbed: dict[str, Tensor], tmp_path: Path) -> None:
    check_close(undisturbed, train_alone(make_job(tmp_path, workers=1)))


def test_workers_are_killed_and_a_checkpoint_is_damaged(undisturbed: dict[str, Tensor], tmp_path: Path) -> None:
    """Killed right after a checkpoint, of which Ray Train knows nothing yet; and later, with the newest one cut."""
    job = make_job(tmp_path)
    state = Path(job.folder) / STATE_FOLDER

    def at(step: int, rank: int, before: int) -> None:
        if (step, rank, before) == (4, 0, 0):
            os.kill(os.getpid(), signal.SIGKILL)
        if (step, rank, before) == (7, 1, 1):
            newest = max(state.rglob("state.pt"), key=lambda path: path.stat().st_mtime)
            newest.write_bytes(newest.read_bytes()[:-1000])
            os.kill(os.getpid(), signal.SIGKILL)

    check_same(train_on_ray(job, at), undisturbed)
    done = [[record["step"] for record in start] for start in steps_done(job)]
    assert done[0] == [0, 1, 2, 3, 4]
    assert done[1][0] == 4 and done[1][:3] == [4, 5, 6]
    assert done[2] == [4, 5, 6, 7]
    discard_state(Path(job.folder))
    assert not state.exists()


def test_a_lost_node_leaves_fewer_workers(undisturbed: dict[str, Tensor], cluster: Cluster, tmp_path: Path) -> None:
    job = make_job(tmp_path, min_workers=1)
    ready = tmp_path / "ready"

    def at(step: int, rank: int, before: int) -> None:
        if (step, rank, before) == (5, 1, 0):
            ready.write_text(ray.get_runtime_context().get_node_id())
            time.sleep(600)

    def remove() -> None:
        while not ready.exists() or not ready.read_text():
            if ended.wait(0.2):
                return
        (node,) = [node for node in cluster.worker_nodes if node.node_id == ready.read_text()]
        cluster.remove_node(node, allow_graceful=False)

    ended = threading.Event()
    remover = threading.Thread(target=remove)
    remover.start()
    try:
        weights = train_on_ray(job, at)
    finally:
        ended.set()
        remover.join()
        cluster.add_node(num_cpus=CPUS)
        cluster.wait_for_nodes()
    check_close(weights, undisturbed)
    first, second = steps_done(job)
    assert {record["workers"] for record in first} == {2}
    assert [(record["step"], record["workers"]) for record in second] == [(step, 1) for step in range(4, STEPS)]


def test_checkpoints_in_an_object_store(cluster: Cluster, bucket: str, tmp_path: Path) -> None:
    store, place = fs.FileSystem.from_uri(bucket)

    def files() -> set[str]:
        found = store.get_file_info(fs.FileSelector(place, recursive=True, allow_not_found=True))
        return {info.path for info in found if info.is_file}

    half = make_job(tmp_path, steps=4, storage=bucket, workers=1)
    train_on_ray(half)
    kept = files()
    assert sum(path.endswith("state.pt") for path in kept) == 2
    assert all(path.startswith(f"{place}/{tmp_path.name}/training/") for path in kept)
    assert not (Path(half.folder) / STATE_FOLDER).exists()
    # A driver that is started again finds them.
    whole = make_job(tmp_path, storage=bucket, workers=2)
    train_on_ray(whole)
    first, second = steps_done(whole)
    assert [record["step"] for record in first] == [0, 1, 2, 3]
    assert [record["step"] for record in second] == [4, 5, 6, 7]
    discard_state(Path(whole.folder))
    assert not files()
