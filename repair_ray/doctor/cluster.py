"""The cluster: can it be reached, does every graph of the run fit on it, and do its nodes see what they must?"""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from repair_ray.config import Config, PoolConfig, TrainingConfig
from repair_ray.doctor.needs import graphs, languages
from repair_ray.doctor.text import one_line, size
from repair_ray.report.findings import Finding, State
from repair_ray.stages.graph import start_ray
from repair_ray.stages.nodes import demand, labelled, shortage
from repair_ray.training.launch import MIN_CPUS

CONNECT_SECONDS = 10.0
NODE_SECONDS = 120.0
GPU_QUERY = ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"]


@dataclass(frozen=True)
class Node:
    """One machine of the cluster. `memory` is what Ray gives to workers, `gpu_memory` of each GPU, both in bytes.

    `sees` tells whether the probe file of the output folder is there, `variables` which of those asked for are set in
    its workers; both None where the node did not answer, and then `error` says why.
    """

    name: str
    cpus: float
    gpus: float
    memory: float
    gpu_memory: tuple[int, ...] = ()
    sees: bool | None = None
    variables: frozenset[str] | None = None
    error: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Cluster:
    """What was found of the cluster; `nodes` is empty where it could not be reached."""

    findings: list[Finding]
    nodes: list[Node] = field(default_factory=list)


def check_cluster(config: Config, probe: Path | None = None, timeout: float = NODE_SECONDS) -> Cluster:
    """Connect as a run does, and hold the cluster against what the config asks for.

    Args:
        probe: a file in the output folder, which every node has to see.
    """
    address = os.environ.get("RAY_ADDRESS")
    try:
        _knock(address)
        start_ray()
        alive = [node for node in ray.nodes() if node["Alive"]]
    except Exception as error:
        # Ray raises ConnectionError, RuntimeError (other versions), ValueError (an address that is none) and others.
        advice = "start the cluster, or correct RAY_ADDRESS" if address else "see the log of the Ray session"
        place = f"RAY_ADDRESS={address}" if address else "Ray on this machine"
        return Cluster([Finding("cluster", "failed", f"{place}: {one_line(error)}", advice)])
    keys = {language.endpoint.key_variable for language in languages(config).values() if language.backend == "openai"}
    cluster = Cluster([], _look_at(alive, str(probe) if probe else None, sorted(keys), timeout))
    cluster.findings += [
        Finding("cluster", "ok", _described(cluster.nodes)),
        *check_pools(config, cluster.nodes),
        *_check_nodes(cluster.nodes, keys),
    ]
    return cluster


def check_pools(config: Config, nodes: Sequence[Node]) -> list[Finding]:
    """Whether the pools of each graph, and the workers of each training, fit on these nodes.

    What does not is a warning where `faults.nodes_wait_s` says that the cluster grows.
    """
    grows = config.faults.nodes_wait_s > 0
    state: State = "warning" if grows else "failed"
    hint = f"; the run waits {config.faults.nodes_wait_s:g} s for its autoscaler" if grows else ""
    have = {"CPU": sum(node.cpus for node in nodes), "GPU": sum(node.gpus for node in nodes)}
    wanted = {
        name: (demand(pools), "the actors, num_cpus or num_gpus of its pools") for name, pools in graphs(config).items()
    }
    for key, training in (("base", config.base), ("training", config.training)):
        if training is not None:
            wanted[key] = (_of_training(training), f"{key}.workers" + (" or use_gpu" if training.use_gpu else ""))
    found = []
    for name, (needed, setting) in wanted.items():
        short = shortage(needed, have)
        if short is not None:
            resource, need, there = short
            fact = f"{name} needs {need:g} {resource}s and the cluster has {there:g}{hint}"
            found.append(Finding("resources", state, fact, f"lower {setting}, or use a larger cluster"))
    for name, pools in graphs(config).items() if not found else ():
        for pool in pools:
            places = sum(_places(pool, node) for node in nodes)
            if places < pool.actors:
                one = f"{pool.num_cpus:g} CPUs and {pool.num_gpus:g} GPUs"
                one += "".join(f", with {key}={value}" for key, value in pool.labels.items())
                fact = f"{name}: the nodes have room for {places} of {pool.actors} actors of {one}{hint}"
                advice = "lower what an actor takes: each must fit on one node"
                found.append(Finding("resources", state, fact, advice))
    if found:
        return found
    name, (needed, _) = max(wanted.items(), key=lambda item: (item[1][0]["GPU"], item[1][0]["CPU"]))
    most = f"{needed['CPU']:g} of {have['CPU']:g} CPUs and {needed['GPU']:g} of {have['GPU']:g} GPUs"
    return [Finding("resources", "ok", f"every stage fits; most is held by {name}: {most}")]


def _knock(address: str | None) -> None:
    """Raises OSError where nothing listens at `host:port`: Ray itself would try for many minutes."""
    host, _, port = (address or "").rpartition("/")[2].rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_SECONDS).close()


def _of_training(training: TrainingConfig) -> dict[str, float]:
    if training.use_gpu:
        return {"CPU": 0.0, "GPU": float(training.workers)}
    return {"CPU": MIN_CPUS * training.workers, "GPU": 0.0}


def _places(pool: PoolConfig, node: Node) -> int:
    if not labelled(node.labels, pool.labels):
        return 0
    parts = [(node.cpus, pool.num_cpus), (node.gpus, pool.num_gpus)]
    # A margin, as shares such as 0.1 do not add up exactly.
    return min((int(have / need + 1e-6) for have, need in parts if need), default=pool.actors)


def _look_at(alive: Sequence[dict[str, Any]], probe: str | None, variables: list[str], timeout: float) -> list[Node]:
    look = ray.remote(num_cpus=0, max_retries=0)(_look)
    asked = [
        look.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)).remote(
            probe, variables, "GPU" in node["Resources"]
        )
        for node in alive
    ]
    ready, _ = ray.wait(asked, num_returns=len(asked), timeout=timeout) if asked else ([], [])
    return [_node(node, reference, reference in ready, timeout) for node, reference in zip(alive, asked, strict=True)]


def _node(raw: dict[str, Any], reference: Any, answered: bool, timeout: float) -> Node:
    resources = raw["Resources"]
    plain = Node(
        raw["NodeManagerHostname"],
        resources.get("CPU", 0.0),
        resources.get("GPU", 0.0),
        resources.get("memory", 0.0),
        error="" if answered else f"no worker answered within {timeout:g} s",
        labels=raw.get("Labels", {}),
    )
    if not answered:
        return plain
    try:
        told = ray.get(reference)
    except Exception as error:
        return replace(plain, error=one_line(error))
    variables = frozenset(told["variables"])
    return replace(plain, gpu_memory=tuple(told["gpu_memory"]), sees=told["sees"], variables=variables)


def _look(probe: str | None, variables: list[str], gpus: bool) -> dict[str, Any]:
    """Runs on a node. Which variables are set is told, never what they hold."""
    memory: list[int] = []
    if gpus:
        # Not through torch: a task without a GPU of its own sees none, and one with would wait for it.
        try:
            listed = subprocess.run(GPU_QUERY, capture_output=True, text=True, timeout=30, check=True).stdout
            memory = [int(line) * 2**20 for line in listed.split()]
        except (OSError, ValueError, subprocess.SubprocessError):
            pass
    return {
        "gpu_memory": memory,
        "sees": probe is None or os.path.exists(probe),
        "variables": [name for name in variables if os.environ.get(name)],
    }


def _check_nodes(nodes: Sequence[Node], keys: set[str]) -> list[Finding]:
    found = [
        Finding("node", "failed", f"{node.name}: {node.error}", "see the log of the Ray session on that node")
        for node in nodes
        if node.error
    ]
    blind = [node.name for node in nodes if node.sees is False]
    if blind:
        fact = f"the output folder is not seen by {', '.join(blind)}"
        found.append(Finding("node", "failed", fact, "set output to a folder that all nodes share"))
    for key in sorted(keys):
        without = [node.name for node in nodes if node.variables is not None and key not in node.variables]
        if without and os.environ.get(key):
            fact = f"{key} is set here, and not in the workers of {', '.join(without)}"
            advice = "set it in the job's runtime environment, or on the nodes"
            found.append(Finding("node", "failed", fact, advice))
    return found


def _described(nodes: Sequence[Node]) -> str:
    lines = [
        f"{node.name}: {node.cpus:g} CPUs, {node.gpus:g} GPUs"
        + (f" of {size(min(node.gpu_memory))}" if node.gpu_memory else "")
        + f", {size(node.memory)} for workers"
        for node in nodes
    ]
    shown = lines[:8] + ([f"and {len(lines) - 8} more"] if lines[8:] else [])
    return f"{len(nodes)} node{'s' if len(nodes) != 1 else ''}; " + "; ".join(shown)
