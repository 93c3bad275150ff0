"""What the pools and trainings of a config ask of Ray, as the stages and the launch of training ask it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from repair_ray.config import LanguageConfig, OptimisationConfig, PoolConfig
from repair_ray.scheduling.fit import MIB, Ask, Node, capacity, problem_of

# What a training worker without a GPU reserves on a machine that is too small for more.
MIN_WORKER_CPUS = 0.5
# Ray Data waits for ever when its actor pools leave no CPU for the tasks that read for them and write.
FEEDING = Ask("tasks that read and write", 1, cpus=1.0)
# Blocks sent to one actor at a time where its pool does not say; an engine mixes eight, and has as many at hand.
BLOCKS_IN_FLIGHT = 2
ENGINE_BLOCKS_IN_FLIGHT = 16


def of_pool(pool: PoolConfig, key: str = "pool") -> Ask:
    """The actors that a pool holds at least; `key` is where its settings stand."""
    return Ask(
        "actors",
        pool.actors,
        pool.num_cpus,
        pool.num_gpus,
        (pool.memory_mb or 0) * MIB,
        pool.accelerator_type,
        {
            "count": f"{key}.actors",
            "CPU": f"{key}.num_cpus",
            "GPU": f"{key}.num_gpus",
            "memory": f"{key}.memory_mb",
            "accelerator": f"{key}.accelerator_type",
            "labels": f"{key}.labels",
        },
        pool.labels,
    )


def of_engine(language: LanguageConfig, key: str = "language") -> Ask:
    """The workers of vLLM engines, each of which may lie on another node, unless one process starts them all."""
    pool, workers = language.pool, language.engine.workers
    whole = of_pool(pool, f"{key}.pool")
    if workers == 1 or not spread(language):
        return whole
    return Ask(
        "engine workers",
        pool.actors * workers,
        whole.cpus / workers,
        whole.gpus / workers,
        whole.memory / workers,
        whole.accelerator,
        whole.keys,
        whole.labels,
    )


def spread(language: LanguageConfig) -> bool:
    """Whether the workers of one engine are placed one by one."""
    engine = language.engine
    return engine.workers > 1 and engine.arguments.get("distributed_executor_backend", "ray") == "ray"


def of_training(training: OptimisationConfig, nodes: Sequence[Node], key: str = "training") -> Ask:
    """The workers of a training: the least that it goes on with."""
    keys = {"accelerator": f"{key}.accelerator_type", "labels": f"{key}.labels"}
    keys["count"] = f"{key}.workers" if training.min_workers is None else f"{key}.min_workers"
    if training.use_gpu:
        keys["GPU"] = f"{key}.use_gpu"
    # Logical CPUs: threads are set by cpus_per_worker, the reservation only has to fit the machines.
    shared = min(float(training.cpus_per_worker), (capacity(nodes)["CPU"] - 1) / training.workers)
    sizes = [size for size in (shared, 1.0) if size > MIN_WORKER_CPUS] + [MIN_WORKER_CPUS]
    asked = [
        Ask(
            "workers",
            training.min_workers or training.workers,
            cpus=size,
            gpus=float(training.use_gpu),
            accelerator=training.accelerator_type,
            keys=keys,
            labels=training.labels,
        )
        for size in sizes
    ]
    return next((one for one in asked if problem_of(key, [one], nodes) is None), asked[-1])


def actor_options(pool: PoolConfig) -> dict[str, Any]:
    """What `map_batches` is told of an actor of a pool."""
    return {
        "num_cpus": pool.num_cpus,
        "num_gpus": pool.num_gpus or None,
        "memory": pool.memory_mb * MIB if pool.memory_mb else None,
        "accelerator_type": pool.accelerator_type,
        "label_selector": pool.labels or None,
    }
