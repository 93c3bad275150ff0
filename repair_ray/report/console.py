"""The terminal: live progress, and the closing tables of a run."""

from __future__ import annotations

from typing import Any

from rich.table import Table
from rich.text import Text

from repair_ray import tables
from repair_ray.report.plain import safe_text as _text
from repair_ray.report.plain import titled as _table
from repair_ray.report.progress import ProgressView
from repair_ray.report.results import (
    DIRECTIONS,
    METRICS,
    bad_rows,
    between,
    count,
    difference,
    model_use,
    outcome,
    points,
    protocol_text,
    recall_text,
    signed,
    systems,
    truth_measures,
)

__all__ = ["ProgressView", "closing_tables"]


def closing_tables(summary: dict[str, Any]) -> list[Table]:
    """The tables that close a run: metrics and stages; calls of models, truth and bad rows where there are any.

    `summary` is what `summary.json` holds; absent parts leave their table out.
    """
    made = [_metrics_table(summary, direction) for direction in DIRECTIONS]
    made += [_stages_table(summary), _models_table(summary), _truth_table(summary), _bad_rows_table(summary)]
    return [table for table in made if table.row_count]


def _metrics_table(summary: dict[str, Any], direction: str) -> Table:
    split = (summary.get("evaluation") or {}).get("split")
    table = _table(f"{DIRECTIONS[direction]}{f' on {split}' if split else ''}, in percent")
    table.add_column("retriever", min_width=12)
    # Two-line headings keep the table within 80 columns.
    for name in ("R@1", "95 %\ninterval", "vs\nbase", *list(METRICS.values())[1:], "items\nencoded"):
        table.add_column(name, justify="right", no_wrap=True, vertical="bottom")
    found = systems(summary)
    base, _ = outcome(found)
    for system in (system for system in found if system.metrics.get(direction)):
        gain = None if system is base else difference(system, base, direction)
        table.add_row(
            _text(system.label, "bold" if system.role == "round" else ""),
            points(system.value(direction)),
            between(system.interval(direction)),
            Text(signed(gain), "" if gain is None else "green" if gain >= 0 else "red"),
            *(points(system.value(direction, metric)) for metric in list(METRICS)[1:]),
            count(system.items),
        )
    table.caption, table.caption_justify = _text(protocol_text(summary.get("evaluation") or {})), "left"
    return table


def _stages_table(summary: dict[str, Any]) -> Table:
    stages = summary.get("stages") or []
    listed = [tables.OK, tables.REJECTED, tables.ERROR]
    others = {status for stage in stages for status in stage.get("statuses") or {}} - set(listed)
    statuses = listed + sorted(others)
    table = _table("Stages")
    table.add_column("stage", overflow="fold")
    for name in ("rows", "seconds", "rows/s", *(status.replace("_", "\n") for status in statuses)):
        table.add_column(name, justify="right", no_wrap=True)
    for stage in stages:
        found = stage.get("statuses") or {}
        table.add_row(
            _text(stage["name"]),
            count(stage["rows"]),
            points(stage["seconds"]),
            points(stage["rows_per_second"]),
            *(_status(status, found.get(status, 0)) for status in statuses),
        )
    if said := recall_text(summary):
        table.caption, table.caption_justify = _text(said), "left"
    return table


def _models_table(summary: dict[str, Any]) -> Table:
    table = _table("Calls of models")
    for name in ("stage", "model"):
        table.add_column(name, overflow="fold")
    for name in ("questions", "calls", "tokens\nin", "tokens\nout", "seconds\na call", "cost"):
        table.add_column(name, justify="right", no_wrap=True, vertical="bottom")
    for used in model_use(summary):
        table.add_row(
            _text(used.stage),
            _text(used.model),
            *(count(number) for number in (used.questions, used.calls, used.input_tokens, used.output_tokens)),
            points(used.latency, 2),
            points(used.cost, 2),
        )
    a_pair = (summary.get("language") or {}).get("calls_per_pair")
    table.caption = None if a_pair is None else f"{points(a_pair, 2)} calls for each accepted edit"
    return table


def _status(status: str, number: int) -> Text:
    return Text(count(number), "red" if status == tables.ERROR and number else "" if number else "dim")


def _truth_table(summary: dict[str, Any]) -> Table:
    rounds = summary.get("rounds") or []
    table = _table("Against the world's truth")
    table.add_column("measure")
    table.add_column("value", justify="right")
    for number, made in enumerate(rounds, start=1):
        prefix = f"round {number}: " if len(rounds) > 1 else ""
        for label, value in truth_measures(made):
            table.add_row(_text(prefix + label), value)
    return table


def _bad_rows_table(summary: dict[str, Any]) -> Table:
    table = _table("Rows that were not used, by reason")
    for name in ("stage", "status", "reason"):
        table.add_column(name, overflow="fold")
    table.add_column("rows", justify="right", no_wrap=True)
    for row in bad_rows(summary):
        table.add_row(_text(row.stage), _text(row.status), _text(row.reason), count(row.count))
    return table
