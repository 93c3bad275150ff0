"""Do the pools of the edit graph overlap? The whole graph against its slowest pool alone, with engines that take time.

Editors and the retriever sleep as long as set, so that what is lost is lost to the graph: instructing, reading sources,
writing shards, handing blocks on, and waiting.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.clocked import CLOCK, read_batches, window
from benchmarks.rows import Row
from benchmarks.timed import TimedMake, TimedSelect
from benchmarks.turns import Settings, Turns
from repair_ray import tables
from repair_ray.config import FaultConfig, PoolConfig
from repair_ray.engines.heuristic import HeuristicLanguage
from repair_ray.engines.language import Verdict
from repair_ray.run import Recipe, Run
from repair_ray.stages.audit import audit
from repair_ray.stages.candidates import DRAFTS
from repair_ray.stages.cases import language_case, make_cases, mismatches_of, passed
from repair_ray.stages.graph import Step, run_graph, start_ray
from repair_ray.stages.rows import Row as Case
from tests.integration.language_run import config, prepare

MARK = 0.9
WIDTH = 128  # of the features in the run
OURS, PEER = "edit graph", "its slowest pool"


@dataclass(frozen=True)
class Sizes:
    rows: int
    edit_seconds: float
    candidates: int
    editors: int
    block: int
    score_seconds: float  # of a block of as many rows


FULL = Sizes(240, 0.25, 2, 2, 4, 0.5)
QUICK = Sizes(24, 0.1, 2, 2, 4, 0.2)


def rows(settings: Settings) -> Iterator[Row]:
    """Edits a second."""
    sizes = QUICK if settings.quick else FULL
    start_ray()
    run = prepare(settings.folder / "run", config({}, budget=20))
    audit(run, config({}, budget=20), "verdicts", "failures")
    cases = instructed(run, sizes.rows)
    turns = Turns({OURS: [], PEER: []})
    for turn in range(settings.pairs):
        turns.seconds[OURS].append(graph(run, cases, sizes, turn))
        turns.seconds[PEER].append(slowest(sizes))
    yield turns.row(
        f"edit graph, {sizes.rows} rows",
        OURS,
        PEER,
        sizes.rows * sizes.candidates,
        "edits/s",
        f"{sizes.editors} editors of {sizes.edit_seconds:g} s an edit, one retriever of {sizes.score_seconds:g} s "
        f"for {sizes.block} rows; the peer is those seconds alone",
        mark=MARK,
    )


def slowest(sizes: Sizes) -> float:
    """Seconds that the slowest pool would take, were it never kept waiting."""
    editing = sizes.rows * sizes.candidates * sizes.edit_seconds / sizes.editors
    return max(editing, -(-sizes.rows // sizes.block) * sizes.score_seconds)


def graph(run: Run, cases: pa.Table, sizes: Sizes, turn: int) -> float:
    """Seconds from the first batch of the editors to the last one of the retriever."""
    shutil.rmtree(run.folder / CLOCK, ignore_errors=True)
    folder, product = str(run.folder), f"edits-{turn}"
    editing = {"folder": folder, "seconds": sizes.edit_seconds, "candidates": sizes.candidates}
    scoring = {"folder": folder, "seconds": sizes.score_seconds, "width": WIDTH}
    pool = PoolConfig(num_cpus=0.5, rows_per_block=sizes.block)
    run_graph(
        run,
        product,
        Recipe({"turn": turn}),
        tables.EDITS,
        [
            Step(TimedMake, DRAFTS, editing, pool.model_copy(update={"actors": sizes.editors}), "edit.pool"),
            Step(TimedSelect, tables.EDITS.schema, scoring, pool, "selection.pool"),
        ],
        lambda: cases,
        faults=FaultConfig(),
    )
    made = run.read(product)
    assert pc.all(pc.equal(made["status"], tables.OK)).as_py() and len(made) == sizes.rows
    return window(read_batches(run.folder))


def instructed(run: Run, count: int) -> pa.Table:
    """So many cases that an editor works on: those of the run that can be instructed, again under other ids."""
    found = make_cases(run, passed(run, "failures", "verdicts", audit=False), "train", "embeddings").to_pylist()
    usable = [case for case in found if case["direction"] == "t2i" and _feasible(case)]
    assert usable, "no failure of this run can be instructed"
    again = [{**usable[n % len(usable)], "failure_id": tables.row_id("stream", n)} for n in range(count)]
    return tables.to_table(again, tables.CASES)


def _feasible(case: Case) -> bool:
    made = HeuristicLanguage().instruct(language_case(case), Verdict("valid", mismatches_of(case)))
    return made.feasible
