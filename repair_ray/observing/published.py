"""From the records of a stage's processes to its metrics, look by look."""

from __future__ import annotations

import time
from pathlib import Path

from repair_ray.observing.figures import Seen, Watched, totals
from repair_ray.observing.meter import Record, read_records
from repair_ray.observing.metrics import PoolState, Published
from repair_ray.observing.rate import seconds_left

LOOK_SECONDS = 0.5
# Each look at figures reads a small file an actor, which may lie on a network storage.
FIGURES_SECONDS = 2.0
# A process that has written nothing for so long is gone; its thread writes every second.
GONE_SECONDS = 10.0


class Publisher:
    """Reads the figures of a stage, and tells them as metrics; both only ever by the driver."""

    def __init__(self, stage: str, figures: Path, watched: Watched) -> None:
        self._figures, self._watched = figures, watched
        self._published = Published(stage, self._states())

    def tell(self, done: int, total: int, rate: float | None) -> None:
        """One look, with the rows or steps that are done, those to do, and the rate."""
        self._published.tell(self._states(), (done, total), rate, seconds_left(done, total, rate))

    def end(self) -> None:
        """The stage is over."""
        self._published.end()

    def _states(self) -> list[PoolState]:
        states = []
        for pool in self._watched.pools:
            records = read_records(self._figures / pool.name)
            seen = self._watched.seen.get(pool.name, Seen())
            states.append(PoolState(pool, totals(records), seen, _alive(records)))
        return states


def _alive(records: list[Record]) -> int:
    # By the driver's clock: where another machine's is far off, the number is too.
    return sum(time.time() - record.seen < GONE_SECONDS for record in records)
