"""Mine: the retriever's failures in both directions, with full knowledge of what is a positive (methods, 1.1)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from repair_ray import tables
from repair_ray.config import Config, MiningConfig, PoolConfig
from repair_ray.engines.failures import Found, TopK, find_failures
from repair_ray.engines.inverted import InvertedSearcher
from repair_ray.engines.searcher import has_gpu
from repair_ray.evaluation.positives import Answers
from repair_ray.run import Recipe, Run
from repair_ray.stages.gallery import GALLERY, QUERY, Files, prepare
from repair_ray.stages.graph import Operator, Progress, Step, half_made, quiet, run_graph
from repair_ray.stages.pools import pool_of
from repair_ray.stages.rows import Row, RowStage
from repair_ray.stages.shards import Shards, ask
from repair_ray.stages.sink import ByPiece

NO_TRUTH = "its ground truth was not embedded"
NO_FAILURE = "no false positive"
BEYOND = "beyond mining.budget"
BEYOND_QUERY = "beyond mining.max_per_query"
KNOWN = "known from an earlier round"
_NONE = pa.array([], pa.string())
# FAISS is several times as fast on thousands of queries as on hundreds; a pool still has some blocks for each actor.
MAX_BLOCK = 4096
BLOCKS_PER_ACTOR = 4
_INPUT_ROWS = 65_536


def fold_of(group: str, folds: int) -> int:
    """The cross-fitting fold of a group: items that show the same thing stay together."""
    return int(tables.row_id("fold", group), 16) % folds


@dataclass(frozen=True)
class Worked:
    """The products of a round that tell which failures it has worked on."""

    verdicts: str
    edits: str


@dataclass(frozen=True)
class _Opened:
    """What is needed to mine one direction."""

    direction: str
    gallery: np.ndarray
    answers: Answers
    query_ids: pa.Array
    gallery_ids: pa.Array
    top_k: TopK


class MineFailures(RowStage):
    """Searches the other modality for each query and keeps what does not belong to it."""

    def setup(
        self,
        folder: str,
        keep: str,
        k: int,
        per_query: int | None,
        memory_mb: int,
        probes: int | None = None,
        shards: list[str] | None = None,
        gpu: bool = False,
    ) -> None:
        """`folder`: what `prepare` has written; `probes`: of an approximate index; `shards`: names of actors."""
        self._files = Files(Path(folder))
        self._rules: dict[str, Any] = {"k": k, "per_query": per_query, "above_gt": keep == "above_gt"}
        self._memory, self._probes, self._shards, self._gpu = memory_mb * 2**20, probes, shards, gpu
        self._opened: _Opened | None = None

    def process(self, rows: list[Row]) -> pa.Table:
        places: dict[str, list[int]] = {}
        for row in rows:
            places.setdefault(row["direction"], []).append(row["place"])
        return pa.concat_tables(
            self._mine(direction, np.array(sorted(found), np.int64)) for direction, found in sorted(places.items())
        )

    def failed(self, row: Row, reason: str) -> Row:
        identity = tables.row_id("mine", row["direction"], row["query_id"])
        return {**row, "failure_id": identity, "status": tables.ERROR, "reason": reason}

    def _mine(self, direction: str, places: np.ndarray) -> pa.Table:
        if self._opened is None or self._opened.direction != direction:
            self._opened = self._open(direction)
        opened = self._opened
        # Mapped for this batch alone: what was asked is not kept in memory.
        queries = self._files.vectors(QUERY[direction])[places]
        found = find_failures(queries, opened.gallery, opened.answers, places, opened.top_k, **self._rules)
        return _table(direction, found, opened.query_ids.take(places), opened.gallery_ids)

    def _open(self, direction: str) -> _Opened:
        files = self._files
        return _Opened(
            direction,
            files.vectors(GALLERY[direction]),
            files.answers(direction),
            files.ids(QUERY[direction]),
            files.ids(GALLERY[direction]),
            self._search(direction),
        )

    def _search(self, direction: str) -> TopK:
        if self._shards is not None:
            return partial(ask, self._shards, direction)
        if self._probes is not None:
            return InvertedSearcher(self._files.inverted(direction), self._probes).top_k
        return self._files.shard(direction, 0, 1, self._memory, gpu=self._gpu).top_k


def _table(direction: str, found: Found, queries: pa.Array, gallery: pa.Array) -> pa.Table:
    """The `failures` rows of a batch of queries."""
    asked, candidates = queries.take(found.query), gallery.take(found.candidate)
    pairs = zip(asked.to_pylist(), candidates.to_pylist(), strict=True)
    failures = {
        "failure_id": [tables.row_id(direction, query, candidate) for query, candidate in pairs],
        "direction": pa.repeat(direction, len(asked)),
        "query_id": asked,
        "candidate_id": candidates,
        "ground_truth_id": gallery.take(found.truth),
        "rank": found.rank,
        "score": found.score,
        "ground_truth_score": found.truth_score,
        "status": pa.repeat(tables.OK, len(asked)),
    }
    bare = queries.take(found.bare)
    without = {
        "failure_id": [tables.row_id("mine", direction, query) for query in bare.to_pylist()],
        "direction": pa.repeat(direction, len(bare)),
        "query_id": bare,
        "status": pa.repeat(tables.NO_FAILURE, len(bare)),
        "reason": pa.array(np.where(np.isin(found.bare, found.unanswered), NO_TRUTH, NO_FAILURE).tolist(), pa.string()),
    }
    return pa.concat_tables(
        [tables.filled(failures, tables.FAILURES.schema), tables.filled(without, tables.FAILURES.schema)]
    )


def mine(
    run: Run,
    config: Config,
    product: str,
    embeddings: str,
    *,
    ids: list[str] | None = None,
    earlier: Sequence[Worked] = (),
    progress: Progress = quiet,
) -> None:
    """Make a `failures` table from an `embeddings` table; `ids` restricts queries and gallery to a fold.

    Failures that `earlier` rounds have worked on stay as rejected rows, so that new ones alone count and are paid for.

    `keep=top_k` keeps the `k` best false positives of a query wherever they rank, so that a query whose own items fill
    the top still shows its near misses (ours; methods 1.1 takes them from the first `k` ranks).

    Raises:
        RunError: as `prepare` and `run_graph`.
    """
    mining = config.mining
    parents = (embeddings, *(product for worked in earlier for product in (worked.verdicts, worked.edits)))
    recipe = Recipe(_settings(mining, config.seed), parents, version=2)
    if run.ready(product, recipe):
        return
    clock = run.clock(product)
    files = prepare(run, mining, embeddings, half_made(run, product) / "search", ids=ids, seed=config.seed)
    clock.keep()
    known = worked_on(run, earlier)
    # The best of a query that are new: known ones, which only the end takes out, must not stand in their place.
    steps = _steps(config, files, None if len(known) else mining.max_per_query)
    try:
        run_graph(
            run,
            product,
            recipe,
            tables.FAILURES,
            steps,
            lambda: _queries(mining, files),
            faults=config.faults,
            cluster=config.cluster,
            finish=ByPiece(
                ("failure_id", "direction", "query_id", "rank", "status"), lambda rows: _settled(rows, mining, known)
            ),
            facts={"search": _facts(mining, files)},
            progress=progress,
        )
    finally:
        for step in steps:
            if isinstance(step, Shards):
                step.close()


def _settings(mining: MiningConfig, seed: int) -> dict[str, Any]:
    """What the failures depend on. The others change the speed alone."""
    speed = {"memory_mb", "shards", "pool"}
    if mining.index == "flat":
        return {"mining": mining.model_dump(mode="json", exclude={*speed, "ivf_lists", "ivf_probes", "min_recall"})}
    return {"mining": mining.model_dump(mode="json", exclude=speed), "seed": seed}


def _facts(mining: MiningConfig, files: Files) -> dict[str, Any]:
    facts: dict[str, Any] = {"index": mining.index}
    if mining.index == "ivf":
        facts |= {"probes": mining.ivf_probes, **{name: files.facts[name] for name in ("lists", "recall", "sampled")}}
    return facts


def _steps(config: Config, files: Files, per_query: int | None) -> list[Operator]:
    """The actors that search: each the whole gallery, or each a part of it beside two that merge what they find."""
    mining, rows, directions = config.mining, files.facts["rows"], config.mining.directions
    queries = sum(rows[QUERY[direction]] for direction in directions)
    pool, key = pool_of(config, "mining")
    gpu = bool(pool.num_gpus) and mining.index == "flat" and has_gpu()
    pool = pool if gpu else pool.on_cpu()
    shards = _shards(mining, pool, max(rows[GALLERY[direction]] for direction in directions) * files.facts["width"] * 4)
    arguments = {
        "folder": str(files.folder),
        "keep": mining.keep,
        "k": mining.k,
        "per_query": per_query,
        "memory_mb": mining.memory_mb,
        "probes": mining.ivf_probes if mining.index == "ivf" else None,
    }
    searching, *parted = mining.pools(pool, shards)
    searching = _sized(searching, queries)
    if not parted:
        return [Step(MineFailures, tables.FAILURES.schema, {**arguments, "gpu": gpu}, searching, key)]
    parts = Shards(files, mining.memory_mb * 2**20, parted[0], gpu, key)
    return [Step(MineFailures, tables.FAILURES.schema, {**arguments, "shards": parts.names}, searching, key), parts]


def _shards(mining: MiningConfig, pool: PoolConfig, gallery_bytes: int) -> int:
    if mining.shards is not None:
        return mining.shards
    if mining.index == "ivf":
        return 1
    # More parts than actors would not be searched at once: each actor goes through its part piece by piece.
    return min(-(-gallery_bytes // (mining.memory_mb * 2**20)), pool.actors)


def _sized(pool: PoolConfig, queries: int) -> PoolConfig:
    block = min(MAX_BLOCK, queries // (BLOCKS_PER_ACTOR * pool.actors))
    return pool.model_copy(update={"rows_per_block": max(pool.rows_per_block, block)})


def _queries(mining: MiningConfig, files: Files) -> Iterator[pa.Table]:
    for direction in mining.directions:
        ids = files.ids(QUERY[direction])
        for start in range(0, len(ids), _INPUT_ROWS):
            part = ids.slice(start, _INPUT_ROWS)
            places = pa.array(np.arange(start, start + len(part)))
            yield pa.table([part, pa.repeat(direction, len(part)), places], schema=tables.QUERIES)


def worked_on(run: Run, earlier: Sequence[Worked]) -> pa.Array:
    """Ids of the failures that rounds have judged or edited; those that ended in an error are to be tried again."""
    found = []
    for worked in earlier:
        edits, verdicts = run.read(worked.edits, ["failure_id", "status"]), run.read(worked.verdicts)
        found += [
            edits.filter(pc.not_equal(edits["status"], tables.ERROR))["failure_id"],
            verdicts.filter(pc.equal(verdicts["status"], tables.REJECTED))["failure_id"],
        ]
    return pa.concat_arrays([part for column in found for part in column.chunks]).unique() if found else _NONE


def within_budget(table: pa.Table, mining: MiningConfig) -> pa.Table:
    """Beyond `mining.budget`, failures of a direction stay as rejected rows: best ranks first, ties by id."""
    return _settled(table, mining.model_copy(update={"max_per_query": None}), _NONE)(table)


def _settled(rows: pa.Table, mining: MiningConfig, known: pa.Array) -> Callable[[pa.Table], pa.Table]:
    """What is done to each piece: failures that are known, beyond `mining.max_per_query` or the budget, are rejected.

    `rows` has the ids, directions, queries, ranks and statuses of all of them. Each stays, as a rejected row.
    """
    found = rows.filter(pc.equal(rows["status"], tables.OK))
    reasons: list[tuple[str, Callable[[pa.Table], pa.Array]]] = []
    if len(known):
        reasons.append((KNOWN, partial(_among, known)))
        found = found.filter(pc.invert(_among(known, found)))
        if mining.max_per_query is not None:
            beyond = _later_of_query(found, mining.max_per_query)
            reasons.append((BEYOND_QUERY, partial(_among, beyond)))
            found = found.filter(pc.invert(_among(beyond, found)))
    if mining.budget is not None:
        for direction in mining.directions:
            mine = found.filter(pc.equal(found["direction"], direction)).select(["rank", "failure_id"])
            if len(mine) > mining.budget:
                order = pc.sort_indices(mine, [("rank", "ascending"), ("failure_id", "ascending")])
                (worst,) = mine.take(order.slice(mining.budget - 1, 1)).to_pylist()
                reasons.append((BEYOND, partial(_later, direction, worst["rank"], worst["failure_id"])))
    return partial(_rejected, reasons=reasons)


def _among(ids: pa.Array, rows: pa.Table) -> pa.Array:
    return pc.is_in(rows["failure_id"], ids)


def _later(direction: str, rank: int, identity: str, rows: pa.Table) -> pa.Array:
    """Which failures of a direction come after the one of that rank and id."""
    tied = pc.and_(pc.equal(rows["rank"], rank), pc.greater(rows["failure_id"], identity))
    return pc.and_(pc.equal(rows["direction"], direction), pc.or_(pc.greater(rows["rank"], rank), tied))


def _later_of_query(found: pa.Table, most: int) -> pa.Array:
    """Ids of the failures of a query beyond its first `most` by rank."""
    frame = found.select(["failure_id", "direction", "query_id", "rank"]).to_pandas()
    ordered = frame.sort_values(["rank", "failure_id"])
    later = ordered.groupby(["direction", "query_id"], sort=False).cumcount() >= most
    return pa.array(ordered["failure_id"][later].tolist(), pa.string())


def _rejected(piece: pa.Table, reasons: Sequence[tuple[str, Callable[[pa.Table], pa.Array]]]) -> pa.Table:
    """A piece with the first reason that meets a failure as its own."""
    for reason, meets in reasons:
        hit = pc.fill_null(pc.and_(pc.equal(piece["status"], tables.OK), meets(piece)), False)
        for name, value in (("status", tables.REJECTED), ("reason", reason)):
            place = piece.schema.get_field_index(name)
            piece = piece.set_column(place, piece.schema.field(name), pc.if_else(hit, value, piece[name]))
    return piece
