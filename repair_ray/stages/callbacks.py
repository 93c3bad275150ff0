"""What Ray Data calls in the driver while a graph runs: to end it, and to look at what waits for its pools."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from ray.data._internal.execution.execution_callback import ExecutionCallback

from repair_ray.observing.figures import PoolSpec, Seen, Watched
from repair_ray.run import RunError
from repair_ray.scheduling.stall import Stall

LOOK_SECONDS = 0.5


class _InDriver(ExecutionCallback):
    """Ray Data takes a class and sends it to all workers with its settings; only the driver's loop needs it."""

    def __call__(self) -> _InDriver:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> _InDriver:
        return self

    def __reduce__(self) -> tuple[type, tuple[()]]:
        return object, ()


class Stopping(_InDriver):
    """Ends a graph from within, when its stage has been given up."""

    def __init__(self, stall: Stall) -> None:
        self._stall = stall

    def on_execution_step(self, executor: Any) -> None:
        """Called by Ray Data several times a second."""
        if self._stall.given_up is not None:
            raise RunError(self._stall.given_up)


class Looking(_InDriver):
    """Looks at the operators of a graph twice a second: blocks that wait for each pool, and bytes that were spilled.

    Spilled bytes and failed tasks are those of this start, added to what `watched` had of earlier ones.
    """

    def __init__(self, watched: Watched, clock: Callable[[], float] = time.monotonic) -> None:
        self._watched, self._clock = watched, clock
        self._looked = float("-inf")
        for pool in watched.pools:
            watched.seen.setdefault(pool.name, Seen())
        self._before = {name: (seen.spilled, seen.failed) for name, seen in watched.seen.items()}

    def on_execution_step(self, executor: Any) -> None:
        """Called by Ray Data several times a second."""
        now = self._clock()
        if now - self._looked < LOOK_SECONDS:
            return
        self._looked = now
        for seen, state in self._look(executor):
            seen.queue = state.total_enqueued_input_blocks()
            seen.queue_sum += seen.queue
            seen.queue_looks += 1
            seen.queue_most = max(seen.queue_most, seen.queue)

    def after_execution_succeeds(self, executor: Any) -> None:
        """Called by Ray Data once all is done: the last blocks may have been spilled since the last look."""
        self._look(executor)

    def _look(self, executor: Any) -> list[tuple[Seen, Any]]:
        """Bytes and tasks of each pool; what is seen of it, and Ray Data's state of its operator."""
        states = list(executor._topology.values())
        found = []
        for pool, place in operators_of([state.op.name for state in states], self._watched.pools).items():
            seen, (spilled, failed) = self._watched.seen[pool], self._before[pool]
            seen.spilled = spilled + states[place].op.metrics.obj_store_mem_spilled
            seen.failed = failed + states[place].op.metrics.num_tasks_failed
            found.append((seen, states[place]))
        return found


def operators_of(names: Sequence[str], pools: Sequence[PoolSpec]) -> dict[str, int]:
    """The place of each pool's operator among those of a graph, by the class in its name.

    Pools that are no operator, such as the actors of a gallery's parts, are left out.
    """
    found: dict[str, int] = {}
    for pool in pools:
        places = [place for place, name in enumerate(names) if f"MapBatches({pool.kind})" in name]
        free = [place for place in places if place not in found.values()]
        if free:
            found[pool.name] = free[0]
    return found
