"""What fits on which nodes, by hand. No Ray."""

from __future__ import annotations

import pytest

from repair_ray.config import LanguageConfig, PoolConfig, TrainingConfig
from repair_ray.scheduling.asks import FEEDING, of_engine, of_pool, of_training
from repair_ray.scheduling.fit import MIB, Ask, Node, places, problem_of, totals

GIB = 2**30
LARGE = 64 * GIB


def node(cpus: float, gpus: float = 0, kind: str | None = None, memory: float = LARGE) -> Node:
    return Node("n", cpus, gpus, memory, accelerators=frozenset({kind} if kind else ()))


def fact(asks: list[Ask], nodes: list[Node]) -> str | None:
    found = problem_of("stage", asks, nodes)
    return None if found is None else found.fact


def pool(actors: int = 1, **settings: float | str) -> Ask:
    return of_pool(PoolConfig.model_validate({"actors": actors, **settings}))


def test_what_a_pool_holds() -> None:
    two = [pool(3, num_cpus=0.5, num_gpus=0.25), pool(2, num_cpus=2, num_gpus=1, memory_mb=100), FEEDING]
    # 1.5 + 4 + 1; 0.75 + 2; 2 * 100 MiB.
    assert totals(two) == {"CPU": 6.5, "GPU": 2.75, "memory": 200 * MIB}


def test_three_nodes_of_one_gpu_hold_no_actor_of_two() -> None:
    found = problem_of("stage", [pool(num_gpus=2)], [node(4, 1)] * 3)
    assert found is not None
    assert found.fact == "stage: the nodes have room for 0 of 1 actors of 1 CPUs and 2 GPUs"
    assert found.key == "pool.num_gpus"
    assert "the largest node has 1 GPUs" in found.advice


def test_ten_tenths_fit_on_one_gpu() -> None:
    assert places(pool(num_gpus=0.1, num_cpus=0), node(4, 1)) == 10
    assert fact([pool(10, num_gpus=0.1, num_cpus=0.1), FEEDING], [node(2, 1)]) is None
    assert fact([pool(11, num_gpus=0.1, num_cpus=0)], [node(2, 1)]) == (
        "stage needs 1.1 GPUs and the cluster has 1 GPUs"
    )


def test_a_share_lies_on_one_device() -> None:
    # Each device holds one share of 0.6: 1.8 of 2 GPUs would be there, and still there is no room for a third.
    assert places(pool(num_gpus=0.6, num_cpus=0), node(8, 2)) == 2
    assert fact([pool(3, num_gpus=0.6, num_cpus=0)], [node(8, 2)]) == (
        "stage: the nodes have room for 2 of 3 actors of 0 CPUs and 0.6 GPUs"
    )


def test_a_whole_gpu_and_shares_of_the_others() -> None:
    # A device that gives a share has no whole GPU left: 1 + 0.25 + 0.25 fit on two, not 1 + 0.6 + 0.6.
    whole = pool(1, num_gpus=1, num_cpus=0)
    assert fact([whole, pool(2, num_gpus=0.25, num_cpus=0)], [node(8, 2)]) is None
    assert fact([whole, pool(2, num_gpus=0.6, num_cpus=0)], [node(8, 2)]) == (
        "stage needs 2.2 GPUs and the cluster has 2 GPUs"
    )
    # 2.7 of 3 GPUs: two devices with 0.6, one that is whole, and none with half of it left.
    crowd = [whole, pool(2, num_gpus=0.6, num_cpus=0), pool(1, num_gpus=0.5, num_cpus=0)]
    told = fact(crowd, [node(8, 3)])
    assert told is not None and told.startswith("stage: the nodes have no room for all of these together")
    assert fact([*crowd[:2], pool(1, num_gpus=0.4, num_cpus=0)], [node(8, 3)]) is None


def test_pools_that_fit_alone_and_not_together() -> None:
    # 3 + 3 CPUs of 4 + 2: the second has to lie where the first does.
    asks = [pool(1, num_cpus=3), of_pool(PoolConfig(num_cpus=3), "edit.pool")]
    found = problem_of("stage", asks, [node(4), node(2)])
    assert found is not None
    assert found.fact.startswith("stage: the nodes have no room for all of these together: 1 actors of 3 CPUs")
    assert found.advice.startswith("lower pool.actors or edit.pool.actors")


def test_a_placement_that_first_fit_misses() -> None:
    # Of 4 and 3 CPUs: 3 on the smaller one, 2 + 2 on the larger; the other way round one of the twos has no place.
    assert fact([pool(1, num_cpus=3), pool(2, num_cpus=2)], [node(4), node(3)]) is None
    assert fact([pool(1, num_cpus=3), pool(2, num_cpus=2)], [node(3), node(4)]) is None


def test_accelerator_types() -> None:
    nodes = [node(8, 8, "L4"), node(8, 2, "H100")]
    assert fact([pool(2, num_gpus=1, accelerator_type="H100")], nodes) is None
    # Ten GPUs are there, and two of this type.
    assert fact([pool(3, num_gpus=1, accelerator_type="H100")], nodes) == (
        "stage: the nodes have room for 2 of 3 actors of 1 CPUs and 1 GPUs of type H100"
    )
    missing = problem_of("stage", [pool(num_gpus=1, accelerator_type="A100")], nodes)
    assert missing is not None
    assert missing.fact == ("stage: no node has a GPU of pool.accelerator_type=A100; the cluster has H100, L4")
    assert missing.key == "pool.accelerator_type"


def test_memory() -> None:
    nodes = [node(8, memory=4 * GIB), node(8, memory=4 * GIB)]
    assert fact([pool(4, memory_mb=2000)], nodes) is None
    # 9,000 MiB are more than 8,192; 3 x 2,500 are less, and each node holds one of them.
    assert fact([pool(3, memory_mb=3000)], nodes) == (
        "stage needs 9,000 MiB of memory and the cluster has 8,192 MiB of memory"
    )
    assert fact([pool(3, memory_mb=2500)], nodes) == (
        "stage: the nodes have room for 2 of 3 actors of 1 CPUs, 0 GPUs and 2,500 MiB of memory"
    )


def test_workers_of_an_engine_lie_apart_and_one_process_does_not() -> None:
    def engine(**arguments: object) -> Ask:
        settings = {"backend": "vllm", "model": "m", "pool": {"actors": 2, "num_cpus": 4, "num_gpus": 2}}
        return of_engine(LanguageConfig.model_validate({**settings, "engine": {"arguments": arguments}}))

    spread = engine(tensor_parallel_size=2)
    assert (spread.count, spread.cpus, spread.gpus) == (4, 2.0, 1.0)
    assert fact([spread], [node(4, 1)] * 4) is None
    one = engine(tensor_parallel_size=2, distributed_executor_backend="mp")
    assert (one.count, one.cpus, one.gpus) == (2, 4.0, 2.0)
    assert fact([one], [node(4, 1)] * 4) == "stage: the nodes have room for 0 of 2 actors of 4 CPUs and 2 GPUs"


@pytest.mark.parametrize(
    ("workers", "wanted", "nodes", "cpus"),
    [
        (1, 2, [node(4)], 2.0),
        # (4 - 1) / 2 each, so that a CPU is left.
        (2, 2, [node(4)], 1.5),
        # Three nodes of two CPUs: five are left for one worker, and no node has more than two.
        (1, 4, [node(2)] * 3, 1.0),
        (8, 2, [node(4)], 0.5),
    ],
)
def test_what_a_training_worker_reserves(workers: int, wanted: int, nodes: list[Node], cpus: float) -> None:
    training = TrainingConfig(workers=workers, cpus_per_worker=wanted)
    assert of_training(training, nodes).cpus == cpus


def test_training_on_gpus() -> None:
    training = TrainingConfig(workers=4, use_gpu=True, accelerator_type="H100")
    nodes = [node(8, 2, "H100"), node(8, 2, "L4")]
    assert fact([of_training(training, nodes)], nodes) == (
        "stage: the nodes have room for 2 of 4 workers of 0.5 CPUs and 1 GPUs of type H100"
    )
