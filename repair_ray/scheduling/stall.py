"""What a stage waits for while it finishes no row: a node for its actors, a CPU for its tasks, or its own work."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import ray
from ray._private.state import actors

from repair_ray.config import FaultConfig
from repair_ray.scheduling.fit import Ask, totals

log = logging.getLogger(__name__)
# Actors that have yet to start, or to start again.
NOT_ALIVE = ("DEPENDENCIES_UNREADY", "PENDING_CREATION", "RESTARTING")
# Ray's own classes, among its other helpers.
GRAPH_WORKER = "MapWorker"
TRAINING_WORKER = "RayTrainWorker"


@dataclass(frozen=True)
class Waiting:
    """Actors of this driver that no node has taken yet, and what the cluster has left."""

    actors: int
    free: dict[str, float]


def waiting() -> Waiting:
    """Asks Ray; a short call. An actor that loads its model has a node, and does not wait."""
    found = [actor for state in NOT_ALIVE for actor in _own_actors(state) if GRAPH_WORKER in actor["ActorClassName"]]
    # Until a worker has taken an actor, its address is empty, or that of the node which looks for a place.
    looking = {(node["NodeID"], node["NodeManagerPort"]) for node in ray.nodes()}
    addresses = [actor["Address"] for actor in found]
    unplaced = sum(not at["IPAddress"] or (at["NodeID"], at["Port"]) in looking for at in addresses)
    return Waiting(unplaced, ray.available_resources())


def workers_waiting(count: int) -> Callable[[], Waiting]:
    """The same for a training of `count` workers, which Ray Train makes when there is room for all of them."""

    def look() -> Waiting:
        alive = sum(actor["ActorClassName"].endswith(TRAINING_WORKER) for actor in _own_actors("ALIVE"))
        return Waiting(max(0, count - alive), ray.available_resources())

    return look


def _own_actors(state: str) -> list[dict[str, Any]]:
    job = ray.JobID.from_hex(ray.get_runtime_context().get_job_id())
    # The public list of actors needs the dashboard, which a local Ray does not start.
    return list(actors(job_id=job, actor_state_name=state).values())


class Stall:
    """Watches one stage: says at the log what is missing, again and again, and tells when to give up.

    Args:
        name: of the stage. unit: what it finishes, `row` or `step`.
    """

    def __init__(
        self,
        name: str,
        asks: Sequence[Ask],
        faults: FaultConfig,
        *,
        unit: str = "row",
        look: Callable[[], Waiting] = waiting,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._name, self._asks, self._faults, self._unit = name, asks, faults, unit
        self._look, self._clock = look, clock
        self._done = 0
        self._moved = self._told = clock()
        self.given_up: str | None = None

    def tell(self, done: int) -> None:
        """To be called about twice a second, with the rows done so far; sets `given_up` after `faults.stop_seconds`."""
        now = self._clock()
        if done != self._done:
            self._done, self._moved, self._told = done, now, now
            return
        idle, limit = now - self._moved, self._faults.stop_seconds
        if limit is not None and idle >= limit and self.given_up is None:
            self.given_up = f"{self._found(idle)}. It was stopped by faults.stop_seconds={limit:g}"
        elif now - self._told >= self._faults.stall_seconds:
            self._told = now
            log.warning(self._found(idle))

    def _found(self, idle: float) -> str:
        told = f"{self._name}: no {self._unit} was finished for {idle:.0f} s"
        try:
            seen = self._look()
        except Exception as error:  # the cluster may be what is lost
            return f"{told}, and Ray does not say why ({type(error).__name__})"
        need = totals(self._asks)
        free = ", ".join(f"{seen.free.get(name, 0.0):g} {name}s" for name in ("CPU", "GPU") if need[name])
        if seen.actors:
            keys = [ask.keys["count"] for ask in self._asks if "count" in ask.keys]
            kinds = ", ".join(f"{ask.count} {ask.what} of {ask.described()}" for ask in self._asks if ask.keys)
            return (
                f"{told}: {seen.actors} of its actors wait for a node ({kinds}; free in the cluster: {free}). A node "
                f"was lost, or other jobs hold the rest: it goes on when there is room, or lower {' or '.join(keys)}"
            )
        if seen.free.get("CPU", 0.0) < 1:
            return f"{told}: its actors have their nodes, and no CPU is free for the tasks that read and write"
        return f"{told}; its actors have their nodes, and start or work"
