"""Whether nodes have room for actors that are held together; no Ray here.

Ray places an actor on one node, whole GPUs as whole devices, and a share of a GPU on one device. What is refused here
cannot be placed in any order; what passes may still have to wait for other jobs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import lil_array

# Ray counts in steps of 1e-4.
STEPS = 10_000
MIB = 2**20
# Seconds for the search of a placement; where it finds none in time, the actors count as placeable.
SEARCH_SECONDS = 2.0


@dataclass(frozen=True)
class Node:
    """One machine of the cluster. `memory` is what Ray gives to workers, in bytes; `accelerators` by Ray's names.

    `there` is False for a node that an autoscaler may start.
    """

    name: str
    cpus: float
    gpus: float
    memory: float
    accelerators: frozenset[str] = field(default=frozenset(), kw_only=True)
    labels: Mapping[str, str] = field(default_factory=dict, kw_only=True)
    there: bool = field(default=True, kw_only=True)


@dataclass(frozen=True)
class Ask:
    """`count` actors of one kind that are held together; `keys` says which setting asks for what.

    `memory` in bytes. Keys of `keys`: `count`, `CPU`, `GPU`, `memory`, `accelerator`.
    """

    what: str
    count: int
    cpus: float = 0.0
    gpus: float = 0.0
    memory: float = 0.0
    accelerator: str | None = None
    keys: dict[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def each(self) -> dict[str, float]:
        """What one actor takes, by Ray's names."""
        return {"CPU": self.cpus, "GPU": self.gpus, "memory": self.memory}

    def described(self) -> str:
        """One actor, such as `1 CPUs and 2 GPUs`."""
        parts = [f"{self.cpus:g} CPUs", f"{self.gpus:g} GPUs"]
        if self.memory:
            parts.append(f"{self.memory / MIB:,.0f} MiB of memory")
        named = f" of type {self.accelerator}" if self.accelerator else ""
        return ", ".join(parts[:-1]) + f" and {parts[-1]}{named}{_labelled(self.labels)}"


@dataclass(frozen=True)
class Problem:
    """Why something cannot be placed: what is missing, the setting that asks for it, and what to do."""

    fact: str
    key: str
    advice: str


def totals(asks: Sequence[Ask]) -> dict[str, float]:
    """CPUs, GPUs and bytes of memory that asks take together."""
    return {name: sum(ask.count * ask.each[name] for ask in asks) for name in ("CPU", "GPU", "memory")}


def capacity(nodes: Sequence[Node]) -> dict[str, float]:
    """CPUs, GPUs and bytes of memory of all nodes."""
    return {name: sum(_has(node)[name] for node in nodes) for name in ("CPU", "GPU", "memory")}


def problem_of(name: str, asks: Sequence[Ask], nodes: Sequence[Node]) -> Problem | None:
    """The first reason why `asks` cannot be held together on `nodes`; None where they can.

    Args:
        name: of the graph or training that asks, for the message.
    """
    asks = [ask for ask in asks if ask.count]
    return (
        _without_node(name, asks, nodes)
        or _too_much(name, asks, nodes)
        or _too_many(name, asks, nodes)
        or _not_together(name, asks, nodes)
    )


def places(ask: Ask, node: Node) -> int:
    """How many actors an empty node holds, of those that are asked for at most."""
    if not _allowed(ask, node):
        return 0
    have = _has(node)
    found = [_whole(have[name], need) for name, need in ask.each.items() if need and name != "GPU"]
    if ask.gpus:
        # Of shares such as 0.6, each device holds one, however many devices there are.
        found.append(int(node.gpus) * _whole(1.0, ask.gpus) if ask.gpus < 1 else _whole(node.gpus, ask.gpus))
    return min(found, default=ask.count)


def _has(node: Node) -> dict[str, float]:
    return {"CPU": node.cpus, "GPU": node.gpus, "memory": node.memory}


def _whole(have: float, need: float) -> int:
    return int(round(have * STEPS) // max(1, round(need * STEPS)))


def _allowed(ask: Ask, node: Node) -> bool:
    right_gpu = ask.accelerator is None or ask.accelerator in node.accelerators
    return right_gpu and all(node.labels.get(key) == value for key, value in ask.labels.items())


def _labelled(labels: Mapping[str, str]) -> str:
    return f" with {', '.join(f'{key}={value}' for key, value in labels.items())}" if labels else ""


def _without_node(name: str, asks: Sequence[Ask], nodes: Sequence[Node]) -> Problem | None:
    for ask in asks:
        labelled = [node for node in nodes if _allowed(replace(ask, accelerator=None), node)]
        if not labelled:
            key = ask.keys.get("labels", "labels")
            return Problem(
                f"{name}: there are no nodes for its {ask.what}{_labelled(ask.labels)}", key, f"correct {key}"
            )
        if not any(_allowed(ask, node) for node in labelled):
            known = sorted({accelerator for node in labelled for accelerator in node.accelerators})
            key = ask.keys.get("accelerator", "accelerator_type")
            fact = f"{name}: no node has a GPU of {key}={ask.accelerator}; the cluster has {', '.join(known) or 'none'}"
            return Problem(fact, key, f"set {key} to one of these, or leave it out" if known else f"leave {key} out")
    return None


def _too_much(name: str, asks: Sequence[Ask], nodes: Sequence[Node]) -> Problem | None:
    needed, have = totals(asks), capacity(nodes)
    for resource, need in needed.items():
        if round(need * STEPS) > round(have[resource] * STEPS):
            fact = f"{name} needs {_amount(resource, need)} and the cluster has {_amount(resource, have[resource])}"
            # Whose part is the largest comes first.
            by_part = sorted(asks, key=lambda ask: -ask.count * ask.each[resource])
            asking = [ask for ask in by_part if ask.each[resource] and ask.keys]
            named = [ask.keys[key] for ask in asking for key in ("count", resource) if key in ask.keys]
            keys = list(dict.fromkeys(named))
            return Problem(fact, keys[0] if keys else resource, f"lower {' or '.join(keys)}, or use a larger cluster")
    return None


def _too_many(name: str, asks: Sequence[Ask], nodes: Sequence[Node]) -> Problem | None:
    for ask in asks:
        room = sum(places(ask, node) for node in nodes)
        if room >= ask.count:
            continue
        fact = f"{name}: the nodes have room for {room} of {ask.count} {ask.what} of {ask.described()}"
        if room:
            key = ask.keys.get("count", "actors")
            return Problem(fact, key, f"lower {key}, or what one takes: each must fit on one node")
        allowed = [_has(node) for node in nodes if _allowed(ask, node)]
        most = {resource: max(has[resource] for has in allowed) for resource in ask.each}
        short = next((resource for resource, need in ask.each.items() if need > most[resource]), "CPU")
        key = ask.keys.get(short, short)
        largest = f"the largest node has {_amount(short, most[short])}"
        return Problem(fact, key, f"lower {key}: each must fit on one node, and {largest}")
    return None


def _not_together(name: str, asks: Sequence[Ask], nodes: Sequence[Node]) -> Problem | None:
    if len(asks) < 2 or _placeable(asks, nodes):
        return None
    keys = [ask.keys["count"] for ask in asks if "count" in ask.keys]
    each = ", ".join(f"{ask.count} {ask.what} of {ask.described()}" for ask in asks)
    fact = f"{name}: the nodes have no room for all of these together: {each}"
    return Problem(fact, keys[0] if keys else "actors", f"lower {' or '.join(keys)}, or what one of them takes")


def _placeable(asks: Sequence[Ask], nodes: Sequence[Node]) -> bool:
    """Whether some placement of all asks exists: an integer program, exact but for `SEARCH_SECONDS`.

    Bins are CPUs and memory of a node and each of its GPUs. A variable says how many actors of an ask have their CPUs
    on a node, and, where they take GPUs, how many of its shares, or of its whole devices, each GPU gives.
    """
    on_node = [(a, n) for a in range(len(asks)) for n in range(len(nodes)) if places(asks[a], nodes[n])]
    on_gpu = [(a, n, d) for a, n in on_node if asks[a].gpus for d in range(int(nodes[n].gpus))]
    column = {place: number for number, place in enumerate([*on_node, *on_gpu])}
    rows: list[tuple[dict[int, float], float, float]] = []
    for a, ask in enumerate(asks):
        rows.append(({column[place]: 1 for place in on_node if place[0] == a}, ask.count, ask.count))
    for n, node in enumerate(nodes):
        here = [place for place in on_node if place[1] == n]
        rows.append(({column[a, n]: round(asks[a].cpus * STEPS) for a, _ in here}, 0, round(node.cpus * STEPS)))
        rows.append(({column[a, n]: asks[a].memory / MIB for a, _ in here}, 0, node.memory / MIB))
        for d in range(int(node.gpus)):
            device = [place for place in on_gpu if place[1:] == (n, d)]
            rows.append(({column[place]: min(1.0, asks[place[0]].gpus) for place in device}, 0, 1 + 1e-6))
    for a, n in on_node:
        if asks[a].gpus:
            devices = {column[place]: -1.0 for place in on_gpu if place[:2] == (a, n)}
            # Actors on a node are the shares that its GPUs give to them, or the whole GPUs over those of one.
            rows.append(({**devices, column[a, n]: max(1.0, asks[a].gpus)}, 0, 0))
    matrix = lil_array((len(rows), len(column)))
    for number, (entries, _, _) in enumerate(rows):
        for place, value in entries.items():
            matrix[number, place] = value
    limits = LinearConstraint(matrix.tocsr(), np.array([row[1] for row in rows]), np.array([row[2] for row in rows]))
    found = milp(
        np.zeros(len(column)),
        integrality=np.ones(len(column)),
        bounds=Bounds(0, np.inf),
        constraints=limits,
        options={"time_limit": SEARCH_SECONDS},
    )
    # 2: proven to have no solution. 1: the time was up.
    return bool(found.status != 2)


def _amount(resource: str, value: float) -> str:
    return f"{value / MIB:,.0f} MiB of memory" if resource == "memory" else f"{value:g} {resource}s"
