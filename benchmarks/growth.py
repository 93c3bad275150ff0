"""How does a whole round grow with its data? The demo's world at n, 2n, 4n and 8n training scenes.

Each size is a run in a process of its own: seconds of each stage by its manifest, and the highest memory of the process
tree while the stage worked. The exponent is the slope of log seconds over log size: 1 is linear growth. What a stage
takes to start is counted, so that small sizes flatter the slope; that of the last doubling is told beside it.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.processes import Sampler, proportional
from benchmarks.rows import MIB, Row
from benchmarks.turns import Settings, apart
from repair_ray.config import parse_config
from repair_ray.rounds.job import run_config
from repair_ray.run import Run

WHOLE = "whole round"
# Of the largest size: what a stage takes anyway is no growth, and shorter stages are left out.
LEAST_SECONDS = 2.0


@dataclass(frozen=True)
class Sizes:
    scenes: int  # of the smallest run
    epochs: int  # that either training sees its scenes
    batch: int
    doublings: int


FULL = Sizes(500, 6, 50, 3)
QUICK = Sizes(40, 1, 20, 1)


@dataclass(frozen=True)
class Stage:
    """Seconds of one stage, and the most that the process tree held meanwhile, in bytes."""

    seconds: float
    memory: int


def rows(settings: Settings) -> Iterator[Row]:
    """A row for each stage's seconds, and for its memory."""
    sizes = QUICK if settings.quick else FULL
    counts = [sizes.scenes * 2**doubling for doubling in range(sizes.doublings + 1)]
    measured = [apart(whole_run, settings.folder / str(count), count, sizes) for count in counts]
    for stage in measured[0]:
        found = [run[stage] for run in measured]
        seconds = [own.seconds for own in found]
        if stage == WHOLE or seconds[-1] >= LEAST_SECONDS or settings.quick:
            yield growth_row(f"round, {stage}", counts, seconds, "s")
            yield growth_row(f"round, {stage}, memory", counts, [own.memory / MIB for own in found], "MiB")


def growth_row(name: str, counts: Sequence[int], values: Sequence[float], unit: str) -> Row:
    """The exponent of growth beside that of linear growth."""
    slope = exponent(counts, values)
    last = exponent(counts[-2:], values[-2:])
    told = ", ".join(f"{value:.3g}" for value in values)
    return {
        "name": name,
        "ours": round(slope, 2),
        "peer": 1.0,
        "peer_name": "linear growth",
        "ratio": round(1 / max(slope, 0.01), 2),
        "unit": "exponent",
        "n": counts[-1],
        "note": f"{told} {unit} at {', '.join(map(str, counts))} scenes; last doubling {last:.2f}",
    }


def exponent(counts: Sequence[int], values: Sequence[float]) -> float:
    """The slope of log values over log counts, by least squares."""
    slope, _ = np.polyfit(np.log(counts), np.log(np.maximum(values, 1e-3)), 1)
    return float(slope)


def whole_run(folder: Path, scenes: int, sizes: Sizes) -> dict[str, Stage]:
    """Make a run; its stages in the order in which they ended, then all of it."""
    steps = math.ceil(sizes.epochs * scenes / sizes.batch)
    training = {"steps": steps, "batch_size": sizes.batch, "validate_every": steps, "checkpoint_every": steps}
    config = parse_config(
        {
            "name": "round",
            "output": str(folder),
            "data": {"world": {"train": scenes, "validation": max(20, scenes // 5), "test": max(20, scenes // 5)}},
            "retriever": {"model": "tiny-64"},
            "base": {**training, "lr": 1e-3},
            "mining": {"k": 5, "budget": 2 * scenes},
            "language": {"max_changes": 9},  # a retriever of so few steps confuses things that are far apart
            "edit": {"image_editor": "scene", "candidates": 2},
            "selection": {"min_gain": -1.0, "min_scaffold": -1.0},
            "controls": [],
            "objective": {"placement": "dispersed"},
            "training": {**training, "lr": 1e-3},
            "evaluation": {"bootstrap": 200},
        }
    )
    watched = Series()
    begun = time.time()
    with watched:
        run_config(config)
    ended = time.time()
    watched.look()
    made = {
        record.name: Stage(record.seconds, most(watched.seen, record.started, record.finished))
        for record in sorted(Run(config.run_dir).records(), key=lambda record: record.finished)
    }
    return {**made, WHOLE: Stage(ended - begun, most(watched.seen, begun, ended))}


class Series(Sampler):
    """The memory of this process and of all below it: when, in seconds since 1970, and bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[float, int]] = []

    def look(self) -> None:
        self.seen.append((time.time(), proportional(os.getpid())))


def most(seen: Sequence[tuple[float, int]], begun: float, ended: float) -> int:
    """The highest memory between two times; where nobody looked between them, that of the nearest look."""
    inside = [held for at, held in seen if begun <= at <= ended]
    _, nearest = min(seen, key=lambda look: min(abs(look[0] - begun), abs(look[0] - ended)))
    return max(inside, default=nearest)
