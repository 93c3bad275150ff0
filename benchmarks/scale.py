"""Does one graph keep many GPUs at work? The embed stage on clusters of several nodes here, with logical GPUs.

Each actor holds one GPU and sleeps as long as set for a batch; scheduling, streaming, row checkpoints and writing are
real, and all nodes share this machine's cores. Efficiency is over the time from when the last actor has begun until the
last batch has ended, so that the start of the processes, which takes a machine's cores and no cluster's, is left out,
and the uneven end is not.
"""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
import ray
from ray.cluster_utils import Cluster

from benchmarks.clocked import CLOCK, Batch, read_batches
from benchmarks.rows import Row
from benchmarks.timed import TimedEmbed
from benchmarks.turns import Settings, rounded
from repair_ray import tables
from repair_ray.config import FaultConfig, PoolConfig
from repair_ray.run import Recipe, Run
from repair_ray.stages.graph import Step, run_graph, start_ray

MARK, MARKED = 0.9, 16
GPUS_A_NODE = 8
STORE = 100 * 2**20


@dataclass(frozen=True)
class Sizes:
    gpus: tuple[int, ...]
    seconds: float  # of a batch
    rows: int  # of a batch
    batches: int  # of an actor

    def total(self, gpus: int) -> int:
        """Batches of all: more of them where it takes longer until all actors have begun."""
        return gpus * (self.batches + gpus // 2)


FULL = Sizes((1, 4, 16, 64), 5.0, 64, 12)
QUICK = Sizes((1, 4), 0.5, 16, 8)


def rows(settings: Settings) -> Iterator[Row]:
    """Efficiency for each number of GPUs; the mark is for 16."""
    sizes = QUICK if settings.quick else FULL
    for gpus in sizes.gpus:
        run = Run(settings.folder / f"{gpus}")
        with cluster(gpus):
            began, cpu, called = time.monotonic(), time.process_time(), time.time()
            graph(run, sizes, gpus)
            share = (time.process_time() - cpu) / (time.monotonic() - began)
        batches = read_batches(run.folder)
        begin = all_begun(batches)
        made = efficiency(batches, gpus, sizes.seconds)
        rate = gpus * sizes.rows / sizes.seconds
        mark = f"mark {MARK:g}; " if gpus == MARKED else ""
        yield {
            "name": f"scale, {gpus} logical GPUs",
            "ours": rounded(made * rate),
            "peer": rounded(rate),
            "peer_name": "ideal",
            "ratio": round(made, 3),
            "unit": "rows/s",
            "n": len(batches),
            "note": f"{mark}batches of {sizes.rows} rows and {sizes.seconds:g} s; driver {share:.0%} of one core; "
            f"all actors at work after {begin - called:.0f} s",
        }
        shutil.rmtree(run.folder / CLOCK)


def graph(run: Run, sizes: Sizes, gpus: int) -> None:
    """Embed captions with one actor a GPU."""
    count = sizes.total(gpus) * sizes.rows
    columns = {"item_id": [f"{n:09d}" for n in range(count)], "text": ["two red squares above a blue ring"] * count}
    columns |= {"kind": [tables.CAPTION] * count, "split": ["train"] * count}
    items: pa.Table = tables.filled(columns, tables.ITEMS)
    run.folder.mkdir(parents=True)
    pool = PoolConfig(actors=gpus, num_cpus=1, num_gpus=1, rows_per_block=sizes.rows)
    step = Step(TimedEmbed, tables.EMBEDDINGS.schema, {"folder": str(run.folder), "seconds": sizes.seconds}, pool)
    run_graph(run, "embeddings", Recipe({}), tables.EMBEDDINGS, [step], lambda: items, faults=FaultConfig())
    assert len(run.read("embeddings", ["item_id"])) == count


def all_begun(batches: list[Batch]) -> float:
    """When the last process began its first batch."""
    first: dict[str, float] = {}
    for batch in batches:
        first.setdefault(batch.process, batch.begun)
    return max(first.values())


def efficiency(batches: list[Batch], gpus: int, seconds: float) -> float:
    """Model time of the batches, `seconds` each, against the time of all GPUs, from when all have begun to the end."""
    begin, end = all_begun(batches), max(batch.ended for batch in batches)
    inside = sum(
        (batch.ended - max(batch.begun, begin)) / (batch.ended - batch.begun)
        for batch in batches
        if batch.ended > begin
    )
    return seconds * inside / (gpus * (end - begin))


@contextmanager
def cluster(gpus: int) -> Iterator[None]:
    """A head that feeds and writes, and nodes of up to `GPUS_A_NODE` GPUs."""
    head = {"num_cpus": 4, "object_store_memory": STORE, "include_dashboard": False}
    made = Cluster(initialize_head=True, head_node_args=head)
    try:
        for first in range(0, gpus, GPUS_A_NODE):
            own = min(GPUS_A_NODE, gpus - first)
            made.add_node(num_cpus=own + 1, num_gpus=own, object_store_memory=STORE)
        ray.init(address=made.address, log_to_driver=False, logging_level=logging.ERROR)
        start_ray()  # connected, it only quietens the logs
        yield
    finally:
        ray.shutdown()
        made.shutdown()
