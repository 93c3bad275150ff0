"""Queries that were wrong and are right now, and the reverse: counts by what they are compared with, and examples."""

from __future__ import annotations

from typing import Any

from repair_ray import tables
from repair_ray.report import results
from repair_ray.report.answers import Answers, state
from repair_ray.report.pictures import DataRows, Pictures, Row, sides

EXAMPLES = 3
KINDS = ("fixed", "broken")


def change_tables(summary: dict[str, Any]) -> list[Row]:
    """For each direction a line for the base and each control: queries fixed and broken, and McNemar's p."""
    found = summary.get("changes") or {}
    made = []
    for direction, title in results.DIRECTIONS.items():
        lines = [
            {"label": results.control_label(name), **part[direction]}
            for name, part in found.items()
            if direction in part
        ]
        if lines:
            made.append({"direction": title, "lines": lines})
    return made


def changed_examples(before: Answers, after: Answers, data: DataRows, pictures: Pictures, seed: int) -> list[Row]:
    """For each direction, `fixed` and `broken`: some of those queries, drawn by `seed` rather than chosen.

    Each has `query`, `before` and `after` (what was ranked first), `right` (the best right item), as `sides` gives
    them, the `ranks` of the right item, and the `scores` of what stood first. Empty for ranks that kept no items.
    """
    found = []
    for direction in results.DIRECTIONS:
        drawn: dict[str, list[Row]] = {kind: [] for kind in KINDS}
        for query in sorted(before[direction], key=lambda query: tables.row_id(seed, direction, query)):
            old, new = before[direction][query], after[direction].get(query)
            if new is None or not old["top"] or not new["top"]:
                continue
            kind = state(old["rank"], new["rank"])
            if kind in KINDS and len(drawn[kind]) < EXAMPLES:
                drawn[kind].append(_example(query, old, new, data, pictures))
        found.append({"direction": direction, **drawn})
    return found if any(part[kind] for part in found for kind in KINDS) else []


def _example(query: str, old: Row, new: Row, data: DataRows, pictures: Pictures) -> Row:
    roles = {"query": query, "before": old["top"][0]["item_id"], "after": new["top"][0]["item_id"]}
    # Of several right items, the one that the retriever which is wrong comes nearest to.
    wrong = new if old["rank"] == 1 else old
    roles["right"] = wrong["ground_truth_id"]
    return {
        **sides(roles, data, pictures),
        "ranks": (old["rank"], new["rank"]),
        "scores": (old["top"][0]["score"], new["top"][0]["score"]),
    }
