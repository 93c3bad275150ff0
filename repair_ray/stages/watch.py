"""Watches a graph from the driver: rows that reached the sink, figures of its pools, time for a resumed run."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from repair_ray.observing.figures import Watched
from repair_ray.observing.published import FIGURES_SECONDS, LOOK_SECONDS, Publisher
from repair_ray.observing.rate import Rate
from repair_ray.run import Clock
from repair_ray.scheduling.stall import Stall


class Watch:
    """Tells how many input rows have reached the sink, while a graph runs, and keeps what a resumed run goes on with.

    Output rows of one input row, of which a stage that fans out makes several, lie in one file.

    Args:
        figures: the folder of the stage's figures; `watched` is what the driver keeps of them.
    """

    def __init__(
        self,
        sink: Path,
        id_column: str,
        product: str,
        total: int,
        progress: Callable[[str, int, int], None],
        clock: Clock,
        stall: Stall,
        figures: Path,
        watched: Watched,
    ) -> None:
        self._clock, self._stall, self._id = clock, stall, id_column
        self._sink, self._product, self._total, self._progress = sink, product, total, progress
        self._counted: dict[str, int] = {}
        self._figures, self._watched = figures, watched
        self._publisher = Publisher(product, figures, watched)
        self._rate: Rate | None = None
        self._told = float("-inf")
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._loop, daemon=True)

    def __enter__(self) -> None:
        self._begun, self._before = time.monotonic(), self._watched.seconds
        self._progress(self._product, 0, self._total)
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._tell_figures(self._done())
        self._publisher.end()

    def _loop(self) -> None:
        while not self._stop.wait(LOOK_SECONDS):
            done = self._done()
            self._progress(self._product, done, self._total)
            self._stall.tell(done)
            # What is there at the first look may be of an earlier start.
            self._rate = self._rate or Rate(done)
            rate = self._rate.tell(done)
            self._clock.keep(total=self._total, done=done, rate=rate)
            if time.monotonic() - self._told >= FIGURES_SECONDS:
                self._tell_figures(done, rate)

    def _done(self) -> int:
        for path in self._sink.glob("*.parquet"):
            if path.name not in self._counted:
                try:
                    self._counted[path.name] = len(pq.read_table(path, columns=[self._id])[self._id].unique())
                except (OSError, pa.ArrowInvalid):
                    continue  # still being written
        return min(sum(self._counted.values()), self._total)

    def _tell_figures(self, done: int, rate: float | None = None) -> None:
        self._told = time.monotonic()
        self._watched.seconds = self._before + self._told - self._begun
        with contextlib.suppress(OSError):  # a full disk stops the graph itself, which says so
            self._watched.keep(self._figures)
        self._publisher.tell(done, self._total, rate)
