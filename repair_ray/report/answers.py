"""What each query of an evaluation found, before and after a repair: by the ranks tables that the evaluations kept."""

from __future__ import annotations

from typing import Any

import pyarrow.parquet as pq

from repair_ray import tables
from repair_ray.report.pictures import Row
from repair_ray.run import Run
from repair_ray.stages.products import round_place

BASE = "base/metrics"

# By direction and query: `rank` (None where nothing is right), `ground_truth_id`, `ground_truth_score`, `top`.
Answers = dict[str, dict[str, Row]]


def read_answers(run: Run, product: str) -> Answers | None:
    """The rows of a ranks table; None where there is none. Tables of earlier versions have an empty `top`."""
    manifest = run.manifest(product)
    if manifest is None or manifest.get("table") != tables.RANKS.name:
        return None
    known = set(pq.read_schema(run.parts(product)[0]).names)
    columns = [name for name in tables.RANKS.schema.names if name in known and name not in ("status", "reason")]
    absent: dict[str, Any] = {"ground_truth_id": None, "ground_truth_score": None, "top": []}
    found: Answers = {"i2t": {}, "t2i": {}}
    for row in run.read(product, columns).to_pylist():
        found[row["direction"]][row["query_id"]] = {**absent, **row}
    return found


def repaired_metrics(summary: dict[str, Any]) -> str | None:
    """The metrics of the round that a run has ended with; None where it has none, or was rolled back to its base."""
    last = (summary.get("result") or {}).get("round", len(summary.get("rounds") or []))
    return f"{round_place(last)}/metrics" if last else None


def state(before: int | None, after: int | None) -> str | None:
    """`fixed`, `broken`, `right`, `wrong` of a query's ranks before and after; None where one was not measured."""
    if not before or not after:
        return None
    if (before == 1) == (after == 1):
        return "right" if after == 1 else "wrong"
    return "fixed" if after == 1 else "broken"
