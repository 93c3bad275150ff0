"""The nodes that Ray has, those that an autoscaler may start, and the check before anything is asked of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import ray
from ray._private.state import state

from repair_ray.config import ClusterConfig, NodeGroupConfig
from repair_ray.run import RunError
from repair_ray.scheduling.fit import Ask, Node, problem_of

# Of what an autoscaler may start: name, most nodes, resources and labels of one.
Group = tuple[str, int, dict[str, float], dict[str, str]]
ACCELERATOR = "accelerator_type:"
# More nodes of one kind than any graph takes; a group without a limit counts as so many.
MANY_NODES = 64
# More than anybody asks for, in bytes.
MEMORY_UNKNOWN = 2.0**50


def nodes_of(cluster: ClusterConfig) -> list[Node]:
    """The nodes that are there, then those that an autoscaler may start: by the cluster, or by `cluster.node_groups`.

    Ray must be connected. An open-source autoscaler tells nobody what it may start; platforms that do are believed.
    """
    here = [node_of(raw) for raw in ray.nodes() if raw["Alive"]]
    groups = [*_reported(), *(_group(section) for section in cluster.node_groups)]
    counted = Counter((node.cpus, node.gpus) for node in here)
    found = list(here)
    for name, most, resources, labels in groups:
        kind = _node(name, resources, labels, there=False)
        shape = (kind.cpus, kind.gpus)
        started = min(counted[shape], most)
        counted[shape] -= started
        found += [kind] * min(most - started, MANY_NODES)
    return found


def require(name: str, asks: Sequence[Ask], cluster: ClusterConfig) -> None:
    """Raises `RunError`, which names the setting to lower, where the cluster can never hold what is asked for."""
    problem = problem_of(name, asks, nodes_of(cluster))
    if problem is None:
        return
    hint = "" if cluster.node_groups else "; what an autoscaler may start has to stand in cluster.node_groups"
    raise RunError(f"{problem.fact}; {problem.advice}{hint}")


def node_of(raw: dict[str, Any]) -> Node:
    """A node as `ray.nodes()` lists it."""
    return _node(raw["NodeManagerHostname"], raw["Resources"], raw.get("Labels"))


def _node(name: str, resources: dict[str, float], labels: dict[str, str] | None = None, *, there: bool = True) -> Node:
    cpus, gpus, memory = (float(resources.get(key, 0.0)) for key in ("CPU", "GPU", "memory"))
    # Ray marks the types of a node's GPUs by a resource for each.
    held = frozenset(key.removeprefix(ACCELERATOR) for key in resources if key.startswith(ACCELERATOR))
    return Node(name, cpus, gpus, memory, accelerators=held, labels=dict(labels or {}), there=there)


def _group(section: NodeGroupConfig) -> Group:
    memory = MEMORY_UNKNOWN if section.memory_gb is None else section.memory_gb * 2**30
    resources = {"CPU": section.cpus, "GPU": float(section.gpus), "memory": memory}
    if section.accelerator_type is not None:
        resources[f"{ACCELERATOR}{section.accelerator_type}"] = 1.0
    return section.accelerator_type or "node", section.max_nodes, resources, dict(section.labels)


def _reported() -> list[Group]:
    """Node groups by the cluster's own account: name, most nodes, resources and labels of one."""
    # There is no public way to it; Ray Data and Ray Train ask here too.
    config: Any = state.get_cluster_config()
    groups = config.node_group_configs if config is not None else ()
    # -1: without a limit.
    return [
        (group.name or "node", MANY_NODES if group.max_count < 0 else group.max_count, dict(group.resources), {})
        for group in groups
        if group.resources
    ]
