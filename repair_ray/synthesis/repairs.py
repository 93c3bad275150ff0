"""The repairs of earlier rounds, looked at again with the retriever that they have helped to make."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from repair_ray import tables
from repair_ray.run import Recipe, Run


def recheck(
    run: Run, product: str, earlier: Mapping[int, str], failures: str, *, fixed_weight: float, depth: int
) -> None:
    """Make a `repairs` table: the accepted edits of earlier rounds, and whether their failures still are some.

    A failure still is one while its false positive scores no less than the best ground truth (ties count against the
    retriever), or may do so out of sight, below `depth` others of its query that do. One that still fails counts fully
    in training; one that is fixed by `fixed_weight` (ours). The facts `rechecked` hold for each round and direction how
    many repairs there are, and how many of them still fail.

    Args:
        earlier: the `edits` product of each earlier round, by its number.
        failures: what is mined now, known failures among them; `depth`: how many of a query at most (`mining.k`).
    """
    recipe = Recipe({"fixed_weight": fixed_weight, "depth": depth}, (failures, *earlier.values()))
    if run.ready(product, recipe):
        return
    start = time.monotonic()
    failing, deep = _failing(run.read(failures), depth)
    rows = [
        {**row, "round": number, "still_fails": still, "weight": 1.0 if still else fixed_weight}
        for number, edits in earlier.items()
        for row in run.read(edits, where=pc.field("status") == tables.OK).to_pylist()
        for still in [row["failure_id"] in failing or (row["direction"], row["query_id"]) in deep]
    ]
    table = tables.to_table(rows, tables.REPAIRS.schema)
    run.commit(product, recipe, tables.REPAIRS, table, time.monotonic() - start, rechecked=_counts(rows, earlier))


def _failing(mined: pa.Table, depth: int) -> tuple[set[str], set[tuple[str, str]]]:
    """Ids of the failures that score no less than their ground truth, and the queries that have `depth` of them."""
    above = mined.filter(pc.fill_null(pc.greater_equal(mined["score"], mined["ground_truth_score"]), False))
    queries = Counter(zip(above["direction"].to_pylist(), above["query_id"].to_pylist(), strict=True))
    return set(above["failure_id"].to_pylist()), {query for query, count in queries.items() if count >= depth}


def _counts(rows: list[dict[str, Any]], earlier: Mapping[int, str]) -> dict[str, Any]:
    made = Counter((row["round"], row["direction"]) for row in rows)
    still = Counter((row["round"], row["direction"]) for row in rows if row["still_fails"])
    return {
        f"round-{number}": {
            direction: {"repairs": made[number, direction], "still_failing": still[number, direction]}
            for direction in ("i2t", "t2i")
        }
        for number in earlier
    }
