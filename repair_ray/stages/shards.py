"""A gallery that is split over actors: each searches its part, and their answers are merged exactly."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import ray
import ray.data

from repair_ray.config import FaultConfig, PoolConfig
from repair_ray.engines.searcher import Searcher, merge_top_k
from repair_ray.observing.meter import Meter
from repair_ray.scheduling.asks import actor_options, of_pool
from repair_ray.scheduling.fit import Ask
from repair_ray.stages.gallery import Files
from repair_ray.stages.graph import interpreter


class GalleryShard:
    """An actor that holds one of the equal parts of each direction's gallery."""

    def __init__(self, folder: str, number: int, shards: int, memory_bytes: int, gpu: bool, figures: str) -> None:
        self._meter = Meter(Path(figures))
        self._files = Files(Path(folder))
        self._part = (number, shards, memory_bytes)
        self._gpu = gpu
        self._searcher: tuple[str, Searcher] | None = None
        self._meter.ready()

    def top_k(self, direction: str, queries: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """As `Searcher.top_k`, of this part; indices are those of the whole gallery."""
        with self._meter.batch(len(queries)):
            if self._searcher is None or self._searcher[0] != direction:
                self._searcher = (direction, self._files.shard(direction, *self._part, gpu=self._gpu))
            found = self._searcher[1].top_k(queries, k)
            self._meter.count(rows_out=len(queries))
        return found


@dataclass
class Shards:
    """The operator that keeps the actors of a gallery's parts while a graph runs; rows pass it untouched."""

    files: Files
    memory_bytes: int
    pool: PoolConfig
    gpu: bool = False
    key: str = "pool"
    session: str = field(default_factory=lambda: uuid.uuid4().hex)
    _actors: list[Any] = field(default_factory=list)

    @property
    def holds(self) -> Ask:
        """What its actors hold."""
        return of_pool(self.pool, self.key)

    @property
    def names(self) -> list[str]:
        """What the actors are called."""
        return [f"{self.session}-{number}" for number in range(self.pool.actors)]

    @property
    def kind(self) -> str:
        """The class of the actors."""
        return GalleryShard.__name__

    def apply(
        self, data: ray.data.Dataset, id_column: str, markers: Path, figures: Path, faults: FaultConfig
    ) -> ray.data.Dataset:
        for number, name in enumerate(self.names):
            options = ray.remote(GalleryShard).options(
                name=name,
                **actor_options(self.pool),
                max_restarts=faults.max_restarts,
                max_task_retries=faults.max_restarts,
                runtime_env=interpreter(self.pool.python),
            )
            part = (number, self.pool.actors, self.memory_bytes, self.gpu, str(figures))
            self._actors.append(options.remote(str(self.files.folder), *part))
        return data

    def close(self) -> None:
        """End the actors."""
        for actor in self._actors:
            ray.kill(actor)
        self._actors.clear()


def ask(names: list[str], direction: str, queries: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """As `Searcher.top_k`, of the whole gallery, from the actors of these names."""
    asked = ray.put(queries)
    parts: list[tuple[np.ndarray, np.ndarray]] = ray.get(
        [ray.get_actor(name).top_k.remote(direction, asked, k) for name in names]
    )
    return merge_top_k(parts, k)
