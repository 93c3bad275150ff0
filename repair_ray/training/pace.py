"""Seconds a step of training waits for its data, and computes, over the course of a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

MAX_WINDOWS = 64


class Pace:
    """Sums by stretches of equally many steps; their number is bounded, so that they grow with the run.

    Steps that were made again after a kill count again: their time was spent.
    """

    def __init__(self, kept: dict[str, Any] | None = None, most: int = MAX_WINDOWS) -> None:
        self._most = most
        kept = kept or {"width": 1, "windows": []}
        self._width: int = kept["width"]
        self._windows: list[list[float]] = [list(window) for window in kept["windows"]]

    def add(self, step: int, waited: float, computed: float) -> None:
        """Seconds of one step, by its number from 0."""
        while step // self._width >= self._most:
            self._halve()
        place = step // self._width
        self._windows += [[0, 0.0, 0.0] for _ in range(place + 1 - len(self._windows))]
        window = self._windows[place]
        window[0], window[1], window[2] = window[0] + 1, window[1] + waited, window[2] + computed

    def kept(self) -> dict[str, Any]:
        """Plain values, that a resumed run goes on with."""
        windows = [[int(steps), round(waited, 4), round(computed, 4)] for steps, waited, computed in self._windows]
        return {"width": self._width, "windows": windows}

    def _halve(self) -> None:
        pairs = zip(self._windows[::2], [*self._windows[1::2], [0, 0.0, 0.0]], strict=False)
        self._windows = [[one + other for one, other in zip(*pair, strict=True)] for pair in pairs]
        self._width *= 2


def by_step(kept: dict[str, Any] | None) -> list[dict[str, float]]:
    """Stretches of a run: their first step (from 1), steps made, mean seconds of a step's data wait and compute."""
    width, windows = (1, []) if kept is None else (kept["width"], kept["windows"])
    return [
        {
            "step": place * width + 1,
            "steps": steps,
            "data_wait_seconds": round(waited / steps, 4),
            "compute_seconds": round(computed / steps, 4),
        }
        for place, (steps, waited, computed) in enumerate(windows)
        if steps
    ]


def pace_facts(kept: dict[str, Any] | None) -> dict[str, Any]:
    """What a manifest says of the first worker's steps: both sums in seconds, and the stretches."""
    windows: Sequence[Sequence[float]] = () if kept is None else kept["windows"]
    return {
        "data_wait_seconds": round(sum(window[1] for window in windows), 3),
        "compute_seconds": round(sum(window[2] for window in windows), 3),
        "by_step": by_step(kept),
    }
