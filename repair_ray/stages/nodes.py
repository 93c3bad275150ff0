"""What a stage takes of the cluster, what is missing, and the wait for nodes that an autoscaler has yet to start."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import ray
from ray.autoscaler.sdk import request_resources

from repair_ray.config import PoolConfig
from repair_ray.run import RunError

LOOK_SECONDS = 2.0
# Ray Data waits for ever when its actor pools leave no CPU for the tasks that feed them.
FEED = 1.0


def demand(pools: Sequence[PoolConfig]) -> dict[str, float]:
    """Logical CPUs and GPUs that the pools of one graph take together."""
    return {
        "CPU": sum(pool.actors * pool.num_cpus for pool in pools) + FEED,
        "GPU": sum(pool.actors * pool.num_gpus for pool in pools),
    }


def shortage(needed: Mapping[str, float], have: Mapping[str, float]) -> tuple[str, float, float] | None:
    """The first resource of which a cluster has too little: its name, what is needed, what is there."""
    for name, need in needed.items():
        if need > have.get(name, 0.0):
            return name, need, have.get(name, 0.0)
    return None


def require(pools: Sequence[PoolConfig], product: str, wait_s: float, advice: str) -> None:
    """See that the cluster has what the pools of a graph, or the workers of a training, take together.

    With `wait_s` (seconds; `faults.nodes_wait_s`) an autoscaler is asked for it first, so that a cluster that has
    shrunk to its head grows again. Sums alone are compared: whether each actor fits on one node is for the doctor.

    Raises:
        RunError: too little of something is there, after the wait.
    """
    lacking = missing(pools, ray.nodes())
    if lacking is not None and wait_s > 0:
        asked = bundles(pools)
        request_resources(
            bundles=[bundle for bundle, _ in asked], bundle_label_selectors=[labels for _, labels in asked]
        )
        try:
            deadline = time.monotonic() + wait_s
            while lacking is not None and time.monotonic() < deadline:
                time.sleep(min(LOOK_SECONDS, wait_s))
                lacking = missing(pools, ray.nodes())
        finally:
            # The actors hold the nodes from here on; what is asked for stays asked for, and would keep them for ever.
            request_resources(bundles=[])
    if lacking is not None:
        waited = f" after {wait_s:g} s of waiting (faults.nodes_wait_s)" if wait_s else ""
        raise RunError(f"{product} needs {lacking}{waited}; {advice}")


def missing(pools: Sequence[PoolConfig], nodes: Iterable[Mapping[str, Any]]) -> str | None:
    """What the nodes (as `ray.nodes()` lists them) lack for the pools, in words; None where all is there."""
    alive = [node for node in nodes if node["Alive"]]
    wanted: list[tuple[dict[str, str], dict[str, float]]] = [({}, demand(pools))]
    for chosen in sorted({tuple(sorted(pool.labels.items())) for pool in pools if pool.labels}):
        own = demand([pool for pool in pools if pool.labels == dict(chosen)])
        # What feeds them runs anywhere.
        wanted.append((dict(chosen), own | {"CPU": own["CPU"] - FEED}))
    for labels, needed in wanted:
        having = [node["Resources"] for node in alive if labelled(node.get("Labels", {}), labels)]
        short = shortage(needed, {name: sum(one.get(name, 0.0) for one in having) for name in needed})
        if short is not None:
            name, need, there = short
            where = f" on nodes with {', '.join(f'{key}={value}' for key, value in labels.items())}" if labels else ""
            return f"{need:g} {name}s{where} but the cluster has {there:g}"
    return None


def labelled(labels: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    """Whether a node with these labels has all that are wanted."""
    return all(labels.get(key) == value for key, value in wanted.items())


def bundles(pools: Iterable[PoolConfig]) -> list[tuple[dict[str, float], dict[str, str]]]:
    """What each actor takes and the labels of its node, and what feeds them all, as the autoscaler is asked for it."""
    made = [
        ({name: share for name, share in (("CPU", pool.num_cpus), ("GPU", pool.num_gpus)) if share}, pool.labels)
        for pool in pools
        for _ in range(pool.actors)
    ]
    return [*((bundle, labels) for bundle, labels in made if bundle), ({"CPU": FEED}, {})]
