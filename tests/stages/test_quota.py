"""How many edits a query keeps, and which."""

from __future__ import annotations

from typing import Any

import pytest

from repair_ray import tables
from repair_ray.config import SelectionConfig
from repair_ray.stages.select import within_quota

BEYOND = "beyond the quota of its query"
SAME = "the same edit was kept for this query already"


def row(identity: str, query: str, before: float | None, text: str | None = "t", **changes: Any) -> dict[str, Any]:
    direction = "t2i" if text is None else "i2t"
    made = {"failure_id": identity, "direction": direction, "query_id": query, "candidate_id": "c"}
    more = {"ground_truth_id": "g", "kind": "edited", "align_before": before, "text": text, "status": tables.OK}
    return {**made, **more, **changes}


def kept(rows: list[dict[str, Any]], **quotas: int) -> dict[str, str]:
    """Status of each row, or the reason why it was rejected."""
    made = within_quota(tables.to_table(rows, tables.EDITS.schema), SelectionConfig(**quotas))
    assert made.schema == tables.EDITS.schema
    assert sorted(made["failure_id"].to_pylist()) == sorted(r["failure_id"] for r in rows), "no row is dropped"
    return {r["failure_id"]: r["reason"] or r["status"] for r in made.to_pylist()}


def test_the_worst_confusions_come_first() -> None:
    rows = [row("a", "q", 0.1, "one"), row("b", "q", 0.9, "two"), row("c", "q", 0.5, "three")]
    for order in (rows, rows[::-1]):
        assert kept(order, d_i2t=2) == {"a": BEYOND, "b": "ok", "c": "ok"}


def test_ties_go_to_the_lower_id() -> None:
    rows = [row("b", "q", 0.5, "two"), row("a", "q", 0.5, "one"), row("c", "q", 0.5, "three")]
    assert kept(rows, d_i2t=1) == {"a": "ok", "b": BEYOND, "c": BEYOND}


def test_each_query_and_direction_has_its_own_quota() -> None:
    rows = [
        row("a", "q1", 0.9, "one"),
        row("b", "q1", 0.8, "two"),
        row("c", "q2", 0.1, "one"),
        row("d", "q1", 0.9, None),
        row("e", "q1", 0.8, None),
        row("f", "q1", 0.7, None),
    ]
    assert kept(rows, d_i2t=1, d_t2i=2) == {"a": "ok", "b": BEYOND, "c": "ok", "d": "ok", "e": "ok", "f": BEYOND}


def test_defaults_are_five_captions_and_one_picture() -> None:
    rows = [row(f"i{n}", "q", 0.5, f"text {n}") for n in range(7)] + [row(f"t{n}", "q", 0.5, None) for n in range(3)]
    assert [key for key, status in kept(rows).items() if status == "ok"] == ["i0", "i1", "i2", "i3", "i4", "t0"]


def test_one_text_counts_once_for_a_query() -> None:
    rows = [
        row("a", "q", 0.9, "A red circle."),
        row("b", "q", 0.8, "a red  circle"),
        row("c", "q", 0.7, "a blue circle"),
        row("d", "p", 0.6, "a red circle"),
    ]
    # The repeat takes no place in the quota; another query may have the same text.
    assert kept(rows, d_i2t=2) == {"a": "ok", "b": SAME, "c": "ok", "d": "ok"}


@pytest.mark.parametrize("status", [tables.REJECTED, tables.ERROR])
def test_rejected_rows_take_no_place_and_keep_their_reason(status: str) -> None:
    rows = [
        row("a", "q", 0.9, "one", status=status, reason="why"),
        row("b", "q", None, "two"),
        row("c", "q", None, "one", status=status, reason="why not"),
    ]
    assert kept(rows, d_i2t=1) == {"a": "why", "b": "ok", "c": "why not"}


def test_unedited_counterparts_count_too() -> None:
    rows = [row(f"{n}", "q", 0.5 - n / 10, None, kind="paired", direction="i2t") for n in range(3)]
    assert kept(rows, d_i2t=2) == {"0": "ok", "1": "ok", "2": BEYOND}


def test_no_rows() -> None:
    assert kept([]) == {}
