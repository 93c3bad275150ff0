"""Comparisons in turns: peer, ours, peer, ours, ..., in one process tree, on the same cores.

What drifts on a machine meets both, so that the ratio of each pair counts, and their median and range are told.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import ParamSpec, TypeVar

from benchmarks.processes import Sampler, proportional
from benchmarks.rows import MIB, Row

P = ParamSpec("P")
R = TypeVar("R")
# Does all of the work once, and tells how many seconds of it count.
Work = Callable[[], float]


@dataclass(frozen=True)
class Settings:
    """How a benchmark is to be made.

    Attributes:
        quick: toy sizes, to check the script; the figures mean nothing.
        folder: where runs and models may lie; removed afterwards.
        threads: of each side.
        pairs: how often each side has its turn, after one that is not timed.
        items: queries and gallery of search and mining; None: as they have it.
    """

    quick: bool
    folder: Path
    threads: int = os.cpu_count() or 1
    pairs: int = 5
    items: int | None = None


class Highest(Sampler):
    """The highest memory in bytes of this process, all below it and what they share, beyond what it was before."""

    every = 0.1

    def __init__(self) -> None:
        super().__init__()
        self._idle = proportional(os.getpid())
        self.bytes = 0

    def look(self) -> None:
        self.bytes = max(self.bytes, proportional(os.getpid()) - self._idle)


@dataclass
class Turns:
    """Seconds of each side, turn by turn, and the memory in bytes that each took in the turn before them."""

    seconds: dict[str, list[float]] = field(default_factory=dict)
    memory: dict[str, int] = field(default_factory=dict)

    def ratios(self, ours: str, peer: str) -> list[float]:
        """How often faster ours was, pair by pair."""
        return [theirs / own for own, theirs in zip(self.seconds[ours], self.seconds[peer], strict=True)]

    def row(self, name: str, ours: str, peer: str, work: float, unit: str, note: str, *, mark: float) -> Row:
        """The rates of `work` units a turn, medians; `ratio` is the median of the pairs'; `mark` is what is asked."""
        ratios = self.ratios(ours, peer)
        rates = {side: work / statistics.median(self.seconds[side]) for side in (ours, peer)}
        about = f"mark {mark:g}; ratios {min(ratios):.3f} to {max(ratios):.3f} in {len(ratios)} pairs"
        return {
            "name": name,
            "ours": rounded(rates[ours]),
            "peer": rounded(rates[peer]),
            "peer_name": peer,
            "ratio": round(statistics.median(ratios), 3),
            "unit": unit,
            "n": len(ratios),
            "note": "; ".join(filter(None, [about, note])),
        }

    def memory_row(self, name: str, ours: str, peer: str) -> Row:
        """The highest memory of a turn of each."""
        took = {side: max(1, round(self.memory[side] / MIB)) for side in (ours, peer)}
        return {
            "name": f"{name}, memory",
            "ours": took[ours],
            "peer": took[peer],
            "peer_name": peer,
            "ratio": round(took[peer] / took[ours], 3),
            "unit": "MiB",
            "n": 1,
            "note": "peak of the process tree beyond what it took before the turn, proportional set size",
        }


def in_turns(sides: Mapping[str, Work], pairs: int, watched: Mapping[str, Work] | None = None) -> Turns:
    """Give each side a turn that is watched but not timed, then `pairs` turns, always in the same order.

    Args:
        watched: what is watched instead, before that turn, where both sides share a process: the same work in one of
            its own.
    """
    turns = Turns({name: [] for name in sides})
    for name, work in sides.items():
        with Highest() as highest:
            (watched or sides)[name]()
        highest.look()
        turns.memory[name] = highest.bytes
        if watched is not None:
            work()
    for _ in range(pairs):
        for name, work in sides.items():
            turns.seconds[name].append(work())
    return turns


def apart(work: Callable[P, R], *arguments: P.args, **options: P.kwargs) -> R:
    """Work in a new process, so that what it loads counts as its own, and is gone afterwards."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(work, *arguments, **options).result()


def rounded(value: float) -> float:
    """Four digits that count."""
    return float(f"{value:.4g}")
