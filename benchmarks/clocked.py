"""Stages that tell when each of their batches began and ended; they do what the engine's own do."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from repair_ray.stages.candidates import MakeCandidates
from repair_ray.stages.embed import EmbedItems
from repair_ray.stages.rows import Row, RowStage
from repair_ray.stages.select import SelectCandidate

CLOCK = "clock"


class Clocked(RowStage):
    """Writes begin, end, rows and threads of each batch into `clock/` of the run's folder, a file a process."""

    def setup(self, *args: Any, **arguments: Any) -> None:
        super().setup(*args, **arguments)  # type: ignore[safe-super]
        place = Path(arguments["folder"]) / CLOCK
        place.mkdir(exist_ok=True)
        # Kept open: a batch costs one write.
        self._clock = (place / f"{type(self).__name__}-{os.getpid()}.jsonl").open("a", buffering=1)

    def _answer(self, rows: list[Row]) -> Any:
        begun = time.time()
        answers = super()._answer(rows)
        batch = {"begun": begun, "ended": time.time(), "rows": len(rows), "threads": _threads()}
        self._clock.write(json.dumps(batch) + "\n")
        return answers


class ClockedEmbed(Clocked, EmbedItems):
    """`EmbedItems`, clocked."""


class ClockedMake(Clocked, MakeCandidates):
    """`MakeCandidates`, clocked."""


class ClockedSelect(Clocked, SelectCandidate):
    """`SelectCandidate`, clocked."""


@dataclass(frozen=True)
class Batch:
    """One batch of one process; times in seconds since 1970."""

    process: str
    begun: float
    ended: float
    rows: int
    threads: int


def read_batches(folder: Path, stage: str = "") -> list[Batch]:
    """All batches of the stages whose name begins so, in the order in which they began."""
    found = [
        Batch(path.stem, **json.loads(line))
        for path in (folder / CLOCK).glob(f"{stage}*.jsonl")
        for line in path.read_text().splitlines()
    ]
    return sorted(found, key=lambda batch: batch.begun)


def window(batches: list[Batch]) -> float:
    """Seconds from the first begin to the last end."""
    return max(batch.ended for batch in batches) - min(batch.begun for batch in batches)


def gap(batches: list[Batch]) -> float:
    """Share of the window of one process in which it had no batch at work."""
    assert len({batch.process for batch in batches}) == 1, "the gaps of one process at a time"
    return 1 - sum(batch.ended - batch.begun for batch in batches) / window(batches)


@contextmanager
def replaced(module: ModuleType, **others: type[RowStage]) -> Iterator[None]:
    """In this block, a module's stages are those others."""
    own = {name: getattr(module, name) for name in others}
    try:
        for name, other in others.items():
            setattr(module, name, other)
        yield
    finally:
        for name, before in own.items():
            setattr(module, name, before)


def _threads() -> int:
    # A stage without a model has not loaded torch, and must not for this.
    torch = sys.modules.get("torch")
    return torch.get_num_threads() if torch else 0
