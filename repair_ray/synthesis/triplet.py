"""Negative captions with pictures of them (TripletCLIP's idea; strategy `triplet`): one table from two others."""

from __future__ import annotations

import time
from functools import cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from repair_ray import tables
from repair_ray.config import Config
from repair_ray.engines.recorded import EDITS
from repair_ray.run import Recipe, Run
from repair_ray.stages.ask import ask, with_answers
from repair_ray.stages.candidates import DRAFTS, MakeCandidates, candidate_arguments
from repair_ray.stages.cases import make_cases
from repair_ray.stages.graph import Progress, Step, quiet, run_graph
from repair_ray.stages.pools import cpu_pool, pool_of
from repair_ray.stages.questions import recipe_of
from repair_ray.stages.rows import Row, RowStage


class TakeFirst(RowStage):
    """Keeps the first candidate that an editor made: a negative picture is not selected, only made."""

    def setup(self) -> None:
        """Nothing to load."""

    def process(self, rows: list[Row]) -> list[Row]:
        return [self._take(row) for row in rows]

    @staticmethod
    def _take(row: Row) -> Row:
        row = {**row, "kind": tables.NEGATIVE, "text": row["query_text"]}
        made = [candidate for candidate in row["candidates"] or [] if candidate["status"] == tables.OK]
        if not made:
            reasons = [candidate["reason"] for candidate in row["candidates"] or [] if candidate["reason"]]
            return {**row, "status": tables.REJECTED, "reason": reasons[0] if reasons else "no candidate was made"}
        return {**row, **{name: made[0][name] for name in ("uri", "offset", "length")}, "status": tables.OK}


def triplets(run: Run, config: Config, product: str, negatives: str, progress: Progress = quiet) -> None:
    """Make an `edits` table of negative captions and, for each that an editor can show, its picture.

    Args:
        negatives: the `edits` product of the negative captions. One for each caption gets a picture: its caption's
            own, edited so that it shows the negative.
    """
    pictures = f"{product}_pictures"
    _edit_pictures(run, config, pictures, negatives, progress)
    recipe = Recipe({}, (negatives, pictures))
    if run.ready(product, recipe):
        return
    start = time.monotonic()
    made = run.read(pictures)
    table = pa.concat_tables([run.read(negatives), made])
    run.commit(product, recipe, tables.EDITS, table, time.monotonic() - start)


def _edit_pictures(run: Run, config: Config, product: str, negatives: str, progress: Progress) -> None:
    language = config.edit.language or config.language

    @cache
    def cases() -> pa.Table:
        return _cases(run, config.mining.split, negatives)

    def asked_of(row: Row) -> str:
        return EDITS["t2i"]

    asked = ask(run, config, language, product, cases, asked_of, (negatives,), progress=progress)
    settings = {
        "language": recipe_of(language),
        "edit": config.edit.recipe,
        "seed": config.seed,
    }
    run_graph(
        run,
        product,
        Recipe(settings, (negatives, *asked)),
        tables.EDITS,
        [
            Step(MakeCandidates, DRAFTS, candidate_arguments(run, config, product), *pool_of(config, "edit")),
            Step(TakeFirst, tables.EDITS.schema, {}, *cpu_pool(config)),
        ],
        lambda: with_answers(run, language, asked, cases(), asked_of),
        faults=config.faults,
        cluster=config.cluster,
        progress=progress,
    )


def _cases(run: Run, split: str, negatives: str) -> pa.Table:
    """The caption's own picture as the candidate, its first negative as the query."""
    table = run.read(negatives)
    first: dict[str, dict[str, Any]] = {}
    for row in table.filter(pc.equal(table["status"], tables.OK)).to_pylist():
        first.setdefault(row["ground_truth_id"], row)
    wanted = {tables.row_id("picture", row["failure_id"]): row for row in first.values()}
    failures = [
        {
            "failure_id": identity,
            "direction": "t2i",
            "query_id": row["ground_truth_id"],
            "candidate_id": row["query_id"],
            "ground_truth_id": row["query_id"],
        }
        for identity, row in wanted.items()
    ]
    rows = make_cases(run, failures, split).to_pylist()
    for row in rows:
        row["query_text"] = wanted[row["failure_id"]]["text"]
        row["query_captions"] = [row["query_text"]]
    return tables.to_table(rows, tables.CASES)
