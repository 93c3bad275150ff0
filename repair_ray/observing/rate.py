"""How fast a stage is now, and how long it has to go."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

WINDOW_SECONDS = 60.0


class Rate:
    """Rows, or steps, a second over the last minute.

    A stage that has just begun, or was done for the most part by an earlier start, is so told by what it does now.
    """

    def __init__(self, done: int, *, window: float = WINDOW_SECONDS, clock: Callable[[], float] = time.monotonic):
        self._clock, self._window = clock, window
        self._looks: deque[tuple[float, int]] = deque([(clock(), done)])

    def tell(self, done: int) -> float | None:
        """The rate, given what is done by now; None until something was finished."""
        now = self._clock()
        # Of the looks that are older than the window, the last one stays: between two blocks there may be minutes.
        while len(self._looks) > 1 and now - self._looks[1][0] >= self._window:
            self._looks.popleft()
        then, before = self._looks[0]
        self._looks.append((now, done))
        if done <= before or now <= then:
            return None
        return (done - before) / (now - then)


def seconds_left(done: int, total: int | None, rate: float | None) -> float | None:
    """Seconds until all is done at a rate; None where either is not known."""
    if total is None or rate is None or rate <= 0:
        return None
    return max(0, total - done) / rate
