"""The figures of a run as Ray metrics, told by the driver: Ray's agents export them to Prometheus as `ray_<name>`.

The driver tells them, not the actors: a worker hands its metrics on every ten seconds, so that an actor that ends with
its stage would lose its last ones, and each worker process would be a series of its own. `stage` is the product that is
made (`round-1/edits`), `pool` the class of its actors: a run has a few dozen of both, whatever its size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache

from ray.util.metrics import Counter, Gauge, Histogram

from repair_ray.observing.figures import PoolSpec, Seen, Totals
from repair_ray.observing.meter import BATCH_SECONDS

PREFIX = "repair_ray_"
STAGE, POOL = ("stage",), ("stage", "pool")
# Of each pool. Ray adds `_total` to the name of a counter where Prometheus reads it.
COUNTERS = {
    "setup_seconds": "Seconds that processes of the pool spent on their set-up",
    "busy_seconds": "Seconds that processes of the pool were at work on batches, or on steps of training",
    "idle_seconds": "Seconds that processes of the pool were neither at work nor in set-up",
    "idle_gpu_seconds": "GPU seconds that the pool held and did not use",
    "data_wait_seconds": "Seconds that training workers waited for the data of their next step",
    "batches": "Batches, or steps of training, that were finished",
    "rows_in": "Rows that the pool was given, or items that training encoded",
    "rows_out": "Rows that the pool has put out",
    "input_tokens": "Tokens of the questions that a language model was asked",
    "output_tokens": "Tokens of its answers",
    "retries": "Batches and calls of a model that were made again",
    "spilled_bytes": "Bytes of the pool's blocks that did not fit the object store and were written to disk",
}
POOL_GAUGES = {
    "processes": "Processes of the pool that were alive a moment ago",
    "utilisation": "Share of their time that they were at work, 0 to 1, since the last look",
    "queue_blocks": "Blocks that wait for the pool",
}
STAGE_GAUGES = {
    "stage_rows_done": "Rows, or steps of training, that the stage has finished",
    "stage_rows": "Rows, or steps of training, that the stage has to finish",
    "stage_rows_per_second": "Rows, or steps of training, a second over the last minute",
    "stage_left_seconds": "Seconds that the stage has to go at that rate",
}
BATCHES = "batch_seconds"
BATCHES_SAID = "Seconds of a batch, or of a step of training"


def exported_names() -> list[str]:
    """The names of all metrics as Prometheus reads them from Ray."""
    counters = [f"ray_{PREFIX}{name}_total" for name in COUNTERS]
    gauges = [f"ray_{PREFIX}{name}" for name in (*POOL_GAUGES, *STAGE_GAUGES)]
    return [*counters, *gauges, *(f"ray_{PREFIX}{BATCHES}_{part}" for part in ("bucket", "count", "sum"))]


@dataclass(frozen=True)
class PoolState:
    """A pool at one look: sums over all its processes, what the driver saw of it, and how many are alive."""

    pool: PoolSpec
    totals: Totals
    seen: Seen
    alive: int

    @property
    def counted(self) -> dict[str, float]:
        """What only grows, by the name of its counter."""
        found = self.totals
        return {
            "setup_seconds": found.setup,
            "busy_seconds": found.busy,
            "idle_seconds": found.idle,
            "idle_gpu_seconds": found.idle_gpus(self.pool.gpus),
            "data_wait_seconds": found.waited,
            "batches": found.batches,
            "rows_in": found.rows_in,
            "rows_out": found.rows_out,
            "input_tokens": found.input_tokens,
            "output_tokens": found.output_tokens,
            "retries": found.retries,
            "spilled_bytes": self.seen.spilled,
        }


@dataclass
class Published:
    """Tells the metrics of one stage. Counters grow by what is new since the last look.

    Args:
        before: what earlier starts of the stage had counted, which this process does not tell again.
    """

    stage: str
    before: Sequence[PoolState] = ()
    _told: dict[str, dict[str, float]] = field(default_factory=dict)
    _buckets: dict[str, tuple[int, ...]] = field(default_factory=dict)
    _alive: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for state in self.before:
            self._remember(state)

    def tell(self, pools: Sequence[PoolState], rows: tuple[int, int], rate: float | None, left: float | None) -> None:
        """One look: `rows` done and to do, rows a second, seconds that are left; None where that is not known."""
        for state in pools:
            self._pool(state)
        found = (float(rows[0]), float(rows[1]), rate, left)
        for name, value in zip(STAGE_GAUGES, found, strict=True):
            _gauge(name).set(0.0 if value is None else value, {"stage": self.stage})

    def end(self) -> None:
        """Gauges go to 0: they would stand at their last value for as long as the process lives."""
        for pool in self._told:
            for name in POOL_GAUGES:
                _gauge(name).set(0.0, {"stage": self.stage, "pool": pool})
        for name in ("stage_rows_per_second", "stage_left_seconds"):
            _gauge(name).set(0.0, {"stage": self.stage})

    def _pool(self, state: PoolState) -> None:
        name, tags = state.pool.name, {"stage": self.stage, "pool": state.pool.name}
        told, buckets = self._told.get(name, {}), self._buckets.get(name, (0,) * len(state.totals.buckets))
        for key, value in state.counted.items():
            if value > told.get(key, 0.0):
                _counter(key).inc(value - told.get(key, 0.0), tags)
        lived = state.totals.alive - self._alive.get(name, 0.0)
        worked = state.totals.busy - told.get("busy_seconds", 0.0)
        mean = worked / max(1.0, state.totals.batches - told.get("batches", 0.0))
        for place, (now, before) in enumerate(zip(state.totals.buckets, buckets, strict=True)):
            for _ in range(now - before):
                _histogram().observe(inside(place, mean), tags)
        gauges = (state.alive, min(1.0, max(0.0, worked / lived)) if lived > 0 else 0.0, state.seen.queue)
        for key, gauge in zip(POOL_GAUGES, gauges, strict=True):
            _gauge(key).set(float(gauge), tags)
        self._remember(state)

    def _remember(self, state: PoolState) -> None:
        name = state.pool.name
        told = self._told.setdefault(name, {})
        # What is read while a file is written may be a moment behind: a counter never goes back.
        for key, value in state.counted.items():
            told[key] = max(value, told.get(key, 0.0))
        before = self._buckets.get(name, (0,) * len(state.totals.buckets))
        self._buckets[name] = tuple(map(max, state.totals.buckets, before))
        self._alive[name] = max(state.totals.alive, self._alive.get(name, 0.0))


def inside(bucket: int, seconds: float) -> float:
    """The value of a bucket that is nearest to these seconds: Ray's histogram takes single values, no counts.

    So its quantiles are right, and its sum nearly so.
    """
    lower = BATCH_SECONDS[bucket - 1] * 1.001 if bucket else 0.0
    upper = BATCH_SECONDS[bucket] if bucket < len(BATCH_SECONDS) else float("inf")
    return min(upper, max(lower, seconds))


@cache
def _counter(name: str) -> Counter:
    return Counter(PREFIX + name, description=COUNTERS[name], tag_keys=POOL)


@cache
def _gauge(name: str) -> Gauge:
    said = POOL_GAUGES | STAGE_GAUGES
    return Gauge(PREFIX + name, description=said[name], tag_keys=POOL if name in POOL_GAUGES else STAGE)


@cache
def _histogram() -> Histogram:
    return Histogram(PREFIX + BATCHES, description=BATCHES_SAID, boundaries=list(BATCH_SECONDS), tag_keys=POOL)
