"""Who makes hard pairs. Every strategy writes the same `edits` table, so training does not know which one it was."""

from __future__ import annotations

import random
import time
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from repair_ray import tables
from repair_ray.config import Config
from repair_ray.run import Recipe, Run
from repair_ray.stages.cases import passed
from repair_ray.stages.mine import within_budget
from repair_ray.stages.positives import Positives
from repair_ray.stages.select import within_quota


def paired_edits(run: Run, config: Config, product: str, failures: str, verdicts: str) -> None:
    """`mined`: failures with the query's own counterpart in place of an edit: hard negatives without repair."""
    recipe = Recipe({"selection": config.selection.model_dump(mode="json", exclude={"pool"})}, (failures, verdicts))
    if run.ready(product, recipe):
        return
    start = time.monotonic()
    rows = [
        {**row, "kind": tables.PAIRED, "align_before": row["score"]}
        for row in passed(run, failures, verdicts, audit=config.selection.audit)
    ]
    table = within_quota(tables.to_table(rows, tables.EDITS.schema), config.selection)
    made_from = {"failures": failures, "verdicts": verdicts}
    run.commit(product, recipe, tables.EDITS, table, time.monotonic() - start, made_from=made_from)


def random_failures(run: Run, config: Config, product: str, failures: str) -> None:
    """`error_agnostic`: as many wrong pairs a query as were mined, drawn at random from all that is not right for it.

    A random pair is a mined failure as seldom as chance makes it. The same queries, audit, editors, selection and
    quotas follow; only failure conditioning is gone.
    """
    recipe = Recipe({"seed": config.seed}, (failures,))
    if run.ready(product, recipe):
        return
    start = time.monotonic()
    split = config.mining.split
    positives = Positives.read(run, split)
    galleries = {"i2t": sorted(positives.of_caption), "t2i": sorted(positives.of_image)}
    table = run.read(failures)
    rows: list[dict[str, Any]] = []
    used: set[str] = set()
    for row in table.filter(pc.equal(table["status"], tables.OK)).to_pylist():
        rng = random.Random(tables.row_id(config.seed, row["failure_id"]))
        known = positives.of(row["direction"], row["query_id"])
        for _ in range(100):
            candidate = rng.choice(galleries[row["direction"]])
            identity = tables.row_id(row["direction"], row["query_id"], candidate)
            if candidate not in known and identity not in used:
                used.add(identity)
                rows.append({**row, "failure_id": identity, "candidate_id": candidate, "rank": None, "score": None})
                break
    made = tables.to_table(rows, tables.FAILURES.schema)
    run.commit(product, recipe, tables.FAILURES, made, time.monotonic() - start)


def merged_failures(run: Run, config: Config, product: str, parts: list[str]) -> None:
    """The failures of all cross-fitting folds as one table, within `mining.budget`."""
    recipe = Recipe({"mining": {"budget": config.mining.budget}}, tuple(parts))
    if not run.ready(product, recipe):
        start = time.monotonic()
        table = within_budget(pa.concat_tables([run.read(part) for part in parts]), config.mining)
        run.commit(product, recipe, tables.FAILURES, table, time.monotonic() - start)
