"""One Ray Data graph: from a committed input to a committed table, resumable row by row.

Ray Data's own row checkpointing (`CheckpointConfig`) remembers which ids reached the sink and commits its files in two
phases, so a killed graph goes on where it was. This module writes the input, builds the graph, and commits the result
once every input id is there.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq
import ray
import ray.data
from ray.data.checkpoint import CheckpointConfig

import repair_ray
from repair_ray.config import ClusterConfig, FaultConfig, PoolConfig
from repair_ray.observing.figures import FIGURES, PoolSpec, Watched, named, stage_facts
from repair_ray.run import Recipe, Run, RunError
from repair_ray.scheduling.asks import BLOCKS_IN_FLIGHT, FEEDING, actor_options, of_pool
from repair_ray.scheduling.cluster import require
from repair_ray.scheduling.fit import MIB, Ask
from repair_ray.scheduling.stall import Stall
from repair_ray.stages.callbacks import Looking, Stopping
from repair_ray.stages.rows import RowStage
from repair_ray.stages.sink import ByPiece, check_counts, read_columns, reconcile, sorted_pieces
from repair_ray.stages.watch import Watch
from repair_ray.tables import Table
from repair_ray.tables.files import StatusCounts

Progress = Callable[[str, int, int], None]
MIN_LOCAL_CPUS = 4
DEFAULT_CLUSTER = ClusterConfig()
# Not Ray's own wrappings of the error of a user's class.
_NAMED_ERROR = re.compile(r"^(?!ray\.|UserCodeException)[\w.]+(Error|Exception|Problem|Interrupt|Exit)\b:")
PACKAGE_ROOT = Path(repair_ray.__file__).parents[1]
# On CPUs, glibc maps a step's tensors anew each time, in threads above all, and training spends up to half its time on
# page faults. One arena that keeps its memory, in huge pages, spares them. Elsewhere the settings mean nothing.
# Only one in GLIBC_TUNABLES: glibc before 2.39 passes no more than the first on to a process's children.
MALLOC = {
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": str(2**31),
    "MALLOC_TRIM_THRESHOLD_": str(2**31),
}


def quiet(name: str, done: int, total: int) -> None:
    """A progress view that shows nothing."""


class Operator(Protocol):
    """One part of a graph."""

    @property
    def pool(self) -> PoolConfig:
        """Its actors, and their batches."""
        ...

    @property
    def holds(self) -> Ask:
        """What it holds of the cluster for as long as the graph runs."""
        ...

    @property
    def kind(self) -> str:
        """The class of its actors, by which its figures are told."""
        ...

    def apply(
        self, data: ray.data.Dataset, id_column: str, markers: Path, figures: Path, faults: FaultConfig
    ) -> ray.data.Dataset:
        """Add it to a graph.

        `markers` is a folder of its own for what it needs to survive its workers, `figures` for what they measure.
        """
        ...


@dataclass(frozen=True)
class Step:
    """An operator of row stages: the class, what its `setup` takes, the schema that it puts out, its actor pool.

    `key` is where the pool's settings stand.
    """

    stage: type[RowStage]
    schema: pa.Schema
    arguments: dict[str, Any] = field(default_factory=dict)
    pool: PoolConfig = field(default_factory=PoolConfig)
    key: str = "pool"

    @property
    def holds(self) -> Ask:
        """What its actors hold."""
        return of_pool(self.pool, self.key)

    @property
    def kind(self) -> str:
        """The stage's class."""
        return self.stage.__name__

    def apply(
        self, data: ray.data.Dataset, id_column: str, markers: Path, figures: Path, faults: FaultConfig
    ) -> ray.data.Dataset:
        return data.map_batches(
            self.stage,
            fn_constructor_kwargs={
                "id_column": id_column,
                "schema": self.schema,
                "markers": str(markers),
                "poison": faults.poison,
                "arguments": self.arguments,
                "figures": str(figures),
            },
            batch_size=self.pool.rows_per_block,
            batch_format="pyarrow",
            compute=ray.data.ActorPoolStrategy(
                min_size=self.pool.actors,
                max_size=self.pool.most,
                max_tasks_in_flight_per_actor=self.pool.blocks_in_flight or BLOCKS_IN_FLIGHT,
            ),
            **actor_options(self.pool),
            max_restarts=faults.max_restarts,
            max_task_retries=faults.max_restarts,
            runtime_env=interpreter(self.pool.python),
        )


def interpreter(python: str | None, variables: dict[str, str] | None = None) -> dict[str, Any] | None:
    """The runtime environment of workers with an interpreter of their own, which finds this package as it is here."""
    if python is None and not variables:
        return None
    paths = [str(PACKAGE_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    made: dict[str, Any] = {"env_vars": {"PYTHONPATH": os.pathsep.join(paths), **(variables or {})}}
    return made if python is None else {**made, "py_executable": python}


def run_graph(
    run: Run,
    product: str,
    recipe: Recipe,
    kind: Table,
    steps: Sequence[Operator],
    make_input: Callable[[], pa.Table | Iterable[pa.Table]],
    *,
    faults: FaultConfig,
    cluster: ClusterConfig = DEFAULT_CLUSTER,
    finish: Callable[[pa.Table], pa.Table] | ByPiece | None = None,
    facts: dict[str, Any] | None = None,
    progress: Progress = quiet,
) -> None:
    """Make a table by streaming its input rows through actor pools; does nothing when it is ready.

    Args:
        make_input: the input rows, with `kind.id_column` unique, as a table or in pieces of one; called once, then
            kept with the half-made table.
        finish: a last step over all rows before they are committed, such as quotas. A function needs the whole table
            in this process; otherwise it is committed piece by piece.
        progress: called with the product's name, rows done and rows to do, about twice a second.

    Raises:
        RunError: no input row, pools that the cluster cannot hold, no row for `faults.stop_seconds`, rows that are
            missing or doubled at the end, or more failing rows than `faults.max_error_rate`.
    """
    if run.ready(product, recipe):
        return
    clock = run.clock(product)
    work = half_made(run, product)
    source, sink = work / "input", work / "rows"
    total = _write_input(source / "input.parquet", make_input, product)
    shutil.rmtree(work / "markers", ignore_errors=True)
    asks = [*(step.holds for step in steps), FEEDING]
    require(product, asks, cluster)
    stall = Stall(product, asks, faults)
    figures = work / FIGURES
    watched = Watched.read(figures, _pools(steps))
    with Watch(sink, kind.id_column, product, total, progress, clock, stall, figures, watched):
        _execute(source, sink, work, kind, steps, watched.pools, faults, _context(cluster, stall, watched))
    files = sorted(sink.glob("*.parquet"))
    reconcile(files, source / "input.parquet", kind, product)
    check_counts(_counted(files, kind), faults, product)
    gpus = sum(ask.count * ask.gpus for ask in asks)
    held = {"gpus": gpus} if gpus else {}
    facts = {"input_rows": total, FIGURES: stage_facts(figures, watched), **held, **(facts or {})}
    if finish is None or isinstance(finish, ByPiece):
        pieces = _finished(files, kind, work / "sorting", finish)
        run.commit_pieces(product, recipe, kind, pieces, lambda: clock.seconds, **facts)
    else:
        run.commit(product, recipe, kind, finish(pq.read_table(sink, schema=kind.schema)), clock.seconds, **facts)
    shutil.rmtree(work, ignore_errors=True)
    progress(product, total, total)


def _pools(steps: Sequence[Operator]) -> list[PoolSpec]:
    """The pools of a graph as they are measured, in the order of its steps."""
    keys = [step.holds.keys.get("count", "").removesuffix(".actors") for step in steps]
    return named(
        [(step.kind, key, step.pool.actors, step.pool.num_gpus) for step, key in zip(steps, keys, strict=True)]
    )


def half_made(run: Run, product: str) -> Path:
    """The folder of what a graph needs until its table is finished; it is removed then."""
    return run.path(product) / "half-made"


def _write_input(path: Path, make_input: Callable[[], pa.Table | Iterable[pa.Table]], product: str) -> int:
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(".tmp")
        made = make_input()
        rows = 0
        writer: pq.ParquetWriter | None = None
        for piece in [made] if isinstance(made, pa.Table) else made:
            writer = writer or pq.ParquetWriter(temporary, piece.schema)
            writer.write_table(piece)
            rows += len(piece)
        if writer is not None:
            writer.close()
        if not rows:
            raise RunError(f"{product} has no input row: nothing was left by the stages before it")
        temporary.rename(path)
    return int(pq.read_metadata(path).num_rows)


def _counted(files: Sequence[Path], kind: Table) -> StatusCounts:
    counts = StatusCounts()
    for rows in read_columns(files, kind.schema, ["status", "reason"]):
        counts.add(rows)
    return counts


def _finished(files: Sequence[Path], kind: Table, work: Path, finish: ByPiece | None) -> Iterator[pa.Table]:
    pieces = sorted_pieces(files, kind, work)
    if finish is None:
        return pieces
    return map(finish.decide(pa.concat_tables(read_columns(files, kind.schema, finish.columns))), pieces)


def _context(cluster: ClusterConfig, stall: Stall, watched: Watched) -> ray.data.DataContext:
    """Ray Data's settings for one graph."""
    context = ray.data.DataContext.get_current().copy()
    context.enable_progress_bars = False
    context.max_errored_blocks = 0
    if cluster.object_store_mb is not None:
        context.execution_options.resource_limits = ray.data.ExecutionResources.for_limits(
            object_store_memory=cluster.object_store_mb * MIB
        )
    # Ray Data would end a graph after half an hour without a finished block, which an editor or a cluster that starts
    # nodes may well take: `faults.stop_seconds` is ours for it.
    context.execution_no_progress_timeout_s = -1
    callbacks: list[Any] = [*context.custom_execution_callback_classes, Stopping(stall), Looking(watched)]
    context.custom_execution_callback_classes = callbacks
    return context


def _execute(
    source: Path,
    sink: Path,
    work: Path,
    kind: Table,
    steps: Sequence[Operator],
    pools: Sequence[PoolSpec],
    faults: FaultConfig,
    context: ray.data.DataContext,
) -> None:
    context.checkpoint_config = CheckpointConfig(
        id_column=kind.id_column, checkpoint_path=str(work / "ids"), delete_checkpoint_on_success=False
    )
    with ray.data.DataContext.current(context), warnings.catch_warnings():
        # Ray Data says that it will not checkpoint a plan with a mere warning; going on would break resuming.
        warnings.filterwarnings("error", message=".*[Cc]heckpoint.*")
        warnings.filterwarnings("ignore", category=DeprecationWarning)
        data = ray.data.read_parquet(str(source)).repartition(target_num_rows_per_block=steps[0].pool.rows_per_block)
        for number, (step, pool) in enumerate(zip(steps, pools, strict=True)):
            # Injected faults are for the first operator, as rows are told apart by their ids at each.
            injected = faults if number == 0 else faults.model_copy(update={"poison": {}})
            places = work / "markers" / str(number), work / FIGURES / pool.name
            data = step.apply(data, kind.id_column, *places, injected)
        try:
            data.write_parquet(str(sink), schema=kind.schema)
        except ray.exceptions.RayError as error:
            raise RunError(_explain(error, sink)) from error


def _explain(error: Exception, sink: Path) -> str:
    text = str(error)
    # Ray's text is a traceback of several processes; the error itself is the last line that names one of ours.
    named = [line for line in map(str.strip, text.splitlines()) if _NAMED_ERROR.match(line)]
    last = named[-1] if named else text.strip().rpartition("\n")[2]
    if "No space left on device" in text:
        return f"the disk of {sink} is full; free space and start the same command again: it goes on from here"
    if "error raised in its creation task" in text:
        return f"a worker could not start: {last}"
    if "ActorDied" in text or "ActorUnavailable" in type(error).__name__ or "died" in text[:500]:
        return (
            "a worker process died more often than faults.max_restarts allows; the log of the Ray session tells how. "
            "The rows that were finished are kept, and the same command goes on from there"
        )
    return f"the graph stopped; the rows that were finished are kept. {last}"


def start_ray() -> None:
    """Connect to a cluster (`RAY_ADDRESS` counts), or start Ray on this machine; does nothing when it runs."""
    for name in ("ray", "ray.data", "ray.train", "ray.tune"):
        logging.getLogger(name).setLevel(logging.ERROR)
    for handler in logging.getLogger("ray.data").handlers:
        if isinstance(handler, logging.StreamHandler):
            handler.setLevel(logging.CRITICAL + 1)  # its tracebacks come as one line of a RunError; its file keeps them
    if ray.is_initialized():
        return
    # Ray's C++ side writes to the terminal past Python's logging; its files keep everything.
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
    for name, value in MALLOC.items():
        os.environ.setdefault(name, value)
    address = os.environ.get("RAY_ADDRESS")
    # A graph needs a logical CPU for each pool and one for what feeds them: a small machine is told that it has four.
    cpus = None if address else max(MIN_LOCAL_CPUS, os.cpu_count() or 1)
    ray.init(
        # Without "local", Ray would look for a cluster that anybody has started on this machine.
        address=address or "local",
        num_cpus=cpus,
        include_dashboard=None if address else False,
        log_to_driver=False,
        logging_level=logging.ERROR,
    )
