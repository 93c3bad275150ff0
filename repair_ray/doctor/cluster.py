"""The cluster: can it be reached, does every graph of the run fit on it, and do its nodes see what they must?"""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from repair_ray.config import Config
from repair_ray.doctor.needs import languages
from repair_ray.doctor.text import one_line, size
from repair_ray.planning import plan
from repair_ray.report.findings import Finding
from repair_ray.run import RunError
from repair_ray.scheduling.cluster import node_of, nodes_of
from repair_ray.scheduling.fit import Node as Place
from repair_ray.scheduling.fit import capacity, totals
from repair_ray.stages.graph import start_ray

CONNECT_SECONDS = 10.0
NODE_SECONDS = 120.0
GPU_QUERY = ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"]


@dataclass(frozen=True)
class Node(Place):
    """One machine of the cluster, as its own worker tells. `gpu_memory` is of each GPU, in bytes.

    `sees` tells whether the probe file of the output folder is there, `variables` which of those asked for are set in
    its workers; both None where the node did not answer, and then `error` says why.
    """

    gpu_memory: tuple[int, ...] = ()
    sees: bool | None = None
    variables: frozenset[str] | None = None
    error: str = ""


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
    try:
        connect()
        alive = [node for node in ray.nodes() if node["Alive"]]
        planned = [node for node in nodes_of(config.cluster) if not node.there]
    except RunError as error:
        fact, _, advice = str(error).rpartition("; ")
        return Cluster([Finding("cluster", "failed", fact, advice)])
    keys = {language.endpoint.key_variable for language in languages(config).values() if language.backend == "openai"}
    cluster = Cluster([], _look_at(alive, str(probe) if probe else None, sorted(keys), timeout))
    cluster.findings += [
        Finding("cluster", "ok", _described(cluster.nodes)),
        *check_pools(config, [*cluster.nodes, *planned]),
        *_check_nodes(cluster.nodes, keys),
    ]
    return cluster


def check_pools(config: Config, nodes: Sequence[Place]) -> list[Finding]:
    """Whether the pools of each graph, and the workers of each training, fit on these nodes."""
    made = plan(config, nodes)
    if made.problems:
        return [Finding("resources", "failed", cause.fact, cause.advice) for cause in made.causes.values()]
    most = max(made.stages, key=lambda stage: (totals(stage.asks)["GPU"], totals(stage.asks)["CPU"]))
    needed, have = totals(most.asks), capacity(nodes)
    held = f"{needed['CPU']:g} of {have['CPU']:g} CPUs and {needed['GPU']:g} of {have['GPU']:g} GPUs"
    return [Finding("resources", "ok", f"every stage fits; most is held by {most.name}: {held}")]


def connect() -> None:
    """Connect to Ray as a run does.

    Raises:
        RunError: the cluster cannot be reached, or Ray cannot start here.
    """
    address = os.environ.get("RAY_ADDRESS")
    try:
        _knock(address)
        start_ray()
    except Exception as error:
        # Ray raises ConnectionError, RuntimeError (other versions), ValueError (an address that is none) and others.
        advice = "start the cluster, or correct RAY_ADDRESS" if address else "see the log of the Ray session"
        place = f"RAY_ADDRESS={address}" if address else "Ray on this machine"
        raise RunError(f"{place}: {one_line(error)}; {advice}") from error


def _knock(address: str | None) -> None:
    """Raises OSError where nothing listens at `host:port`: Ray itself would try for many minutes."""
    host, _, port = (address or "").rpartition("/")[2].rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_SECONDS).close()


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
    error = "" if answered else f"no worker answered within {timeout:g} s"
    plain = Node(**vars(node_of(raw)), error=error)
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
