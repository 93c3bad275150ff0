"""What the pools of a stage did with their time: sums over the records of their processes, as facts of a manifest.

Idle GPU seconds are the GPUs of a process times what it was alive for and not busy: set-up, waiting for blocks, and the
end of a stage that others still work on. Ray's own start of a process, before it makes our class, is not seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from repair_ray.observing.meter import BATCH_SECONDS, Record, read_records
from repair_ray.run import read_json, write_json

FIGURES = "figures"
# Training keeps its folder with its state; graphs theirs with the half-made table.
DRIVER_FILE = "driver.json"


@dataclass(frozen=True)
class PoolSpec:
    """A pool that is measured. `gpus` are those that one actor holds.

    `name` tells it from the others of its stage, `kind` is the class of its actors, `key` where its settings stand.
    """

    name: str
    kind: str
    key: str
    actors: int
    gpus: float = 0.0


def named(pools: Sequence[tuple[str, str, int, float]]) -> list[PoolSpec]:
    """Pools of one stage by kind, key, actors and GPUs; the second of a kind is told by a number."""
    made: list[PoolSpec] = []
    for kind, key, actors, gpus in pools:
        again = 1 + sum(pool.kind == kind for pool in made)
        made.append(PoolSpec(kind if again == 1 else f"{kind}-{again}", kind, key, actors, gpus))
    return made


@dataclass
class Seen:
    """What the driver saw of one pool while the stage ran: blocks that waited for it, and what of them was spilled.

    `queue_sum` is over `queue_looks` looks. `spilled` is in bytes, `failed` counts tasks that Ray Data gave up.
    """

    queue: int = 0
    queue_sum: int = 0
    queue_looks: int = 0
    queue_most: int = 0
    spilled: int = 0
    failed: int = 0


@dataclass
class Watched:
    """What the driver keeps of a stage over all its starts: its pools, seconds of its graph, what was seen of each."""

    pools: list[PoolSpec]
    seconds: float = 0.0
    seen: dict[str, Seen] = field(default_factory=dict)

    @classmethod
    def read(cls, figures: Path, pools: Sequence[PoolSpec] | None = None) -> Watched:
        """What earlier starts of the stage have kept; `pools` are those of this start, None: as they were."""
        record = read_json(figures / DRIVER_FILE) or {}
        specs = [PoolSpec(**spec) for spec in record.get("pools", ())] if pools is None else list(pools)
        seen = {name: Seen(**found) for name, found in record.get("seen", {}).items()}
        return cls(specs, float(record.get("seconds", 0.0)), seen)

    def keep(self, figures: Path) -> None:
        """Write it down, for a start after this one was killed, and for `repair-ray status`."""
        figures.mkdir(parents=True, exist_ok=True)
        write_json(figures / DRIVER_FILE, asdict(self))


@dataclass(frozen=True)
class Totals:
    """The sum over a pool's records. Times in seconds, summed over processes."""

    processes: int
    alive: float
    setup: float
    busy: float
    waited: float
    batches: int
    rows_in: int
    rows_out: int
    input_tokens: int
    output_tokens: int
    retries: int
    buckets: tuple[int, ...]

    @property
    def idle(self) -> float:
        """Neither busy nor in set-up."""
        return max(0.0, self.alive - self.busy - self.setup)

    def idle_gpus(self, gpus: float) -> float:
        """GPU seconds that were held and not used, of processes that hold `gpus` each."""
        return gpus * max(0.0, self.alive - self.busy)


def totals(records: Sequence[Record]) -> Totals:
    """Sums over the processes of a pool."""
    sums = {name: sum(getattr(record, name) for record in records) for name in _SUMMED}
    buckets = [sum(record.buckets[place] for record in records) for place in range(len(BATCH_SECONDS) + 1)]
    return Totals(processes=len(records), buckets=tuple(buckets), **sums)


_SUMMED = (
    "alive",
    "setup",
    "busy",
    "waited",
    "batches",
    "rows_in",
    "rows_out",
    "input_tokens",
    "output_tokens",
    "retries",
)


def pool_facts(pool: PoolSpec, records: Sequence[Record], seen: Seen | None, seconds: float) -> dict[str, Any]:
    """One pool of a stage as plain values, for a manifest.

    Args:
        seconds: that the stage's graph, or training, has run; rates are by it.
    """
    found, seen = totals(records), seen or Seen()
    rated = seconds if seconds > 0 else None
    return {
        "pool": pool.name,
        "key": pool.key,
        "actors": pool.actors,
        "gpus": pool.gpus,
        "processes": found.processes,
        "seconds": round(seconds, 3),
        "alive_seconds": round(found.alive, 3),
        "setup_seconds": round(found.setup, 3),
        "busy_seconds": round(found.busy, 3),
        "idle_seconds": round(found.idle, 3),
        "data_wait_seconds": round(found.waited, 3),
        "idle_gpu_seconds": round(found.idle_gpus(pool.gpus), 3),
        "utilisation": round(found.busy / found.alive, 4) if found.alive > 0 else None,
        "batches": found.batches,
        "rows_in": found.rows_in,
        "rows_out": found.rows_out,
        "rows_per_second": round(found.rows_in / rated, 2) if rated else None,
        "input_tokens": found.input_tokens,
        "output_tokens": found.output_tokens,
        "tokens_per_second": round((found.input_tokens + found.output_tokens) / rated, 2) if rated else None,
        "retries": found.retries,
        "queue_mean": round(seen.queue_sum / seen.queue_looks, 2) if seen.queue_looks else None,
        "queue_most": seen.queue_most if seen.queue_looks else None,
        "spilled_bytes": seen.spilled,
    }


def stage_facts(figures: Path, watched: Watched | None = None) -> list[dict[str, Any]]:
    """All pools of a stage, in the order of its steps; those that no process has measured are left out."""
    watched = Watched.read(figures) if watched is None else watched
    found = [(pool, read_records(figures / pool.name)) for pool in watched.pools]
    return [
        pool_facts(pool, records, watched.seen.get(pool.name), watched.seconds) for pool, records in found if records
    ]
