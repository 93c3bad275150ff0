"""The terminal: live progress, the closing tables of a run, and the table of `repair-ray status`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from rich.table import Table
from rich.text import Text

from repair_ray import tables
from repair_ray.report.plain import safe_text as _text
from repair_ray.report.plain import titled as _table
from repair_ray.report.progress import ProgressView
from repair_ray.report.results import (
    DIRECTIONS,
    METRICS,
    NOTHING,
    bad_rows,
    between,
    count,
    difference,
    duration,
    model_use,
    outcome,
    points,
    protocol_text,
    recall_text,
    signed,
    systems,
    truth_measures,
)
from repair_ray.run import Run, find_files, read_json

__all__ = ["ProgressView", "closing_tables", "status_table"]

# What is usually made after a product, by its name or the last part of it.
FOLLOWS = {
    "images": "data/captions",
    "captions": "the base retriever, then embeddings",
    "base/training": "embeddings",
    "embeddings": "the base's metrics, then failures",
    "base/metrics": "failures, or training where nothing is synthesised",
    "failures": "verdicts",
    "verdicts": "edits",
    "random_failures": "random_verdicts",
    "random_verdicts": "edits",
    "edits": "training",
    "training": "evaluation",
    "evaluation": "metrics",
    "metrics": "the next control, or the summary",
}


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


def status_table(run: Run) -> Table:
    """What a run directory holds: finished products, half-made ones with rows or steps so far, and what comes next."""
    table = _table(f"Run {run.folder.name}")
    table.add_column("product")
    table.add_column("state")
    for name in ("rows or steps", "time"):
        table.add_column(name, justify="right", no_wrap=True)
    finished = list(run.products())
    for name, manifest in finished:
        rows = count(manifest["rows"]) if "rows" in manifest else NOTHING
        table.add_row(_text(name), Text("finished", "green"), rows, duration(manifest["seconds"]))
    half = list(_half_made(run))
    for name, done, total, seconds in half:
        share = NOTHING if total is None else f"{count(done)} of {count(total)}"
        table.add_row(_text(name), Text("half-made", "yellow"), share, duration(seconds))
    table.caption = _text(_next(run, [name for name, _ in finished], [name for name, *_ in half]))
    table.caption_justify = "left"
    table.min_width = 72  # room for the caption, which wraps at the table's width
    return table


def _half_made(run: Run) -> Iterator[tuple[str, int, int | None, float]]:
    """Name, rows or training steps so far, how many there are to do (None where that is not known), seconds spent."""
    for path in find_files(run.folder, "begun.json"):
        begun = read_json(path)
        if begun is None:
            continue  # finished in this moment
        rows = sum(_rows_in(part) for part in (path.parent / "half-made" / "rows").glob("*.parquet"))
        done, total = begun.get("steps", rows), begun.get("total")
        yield path.parent.relative_to(run.folder).as_posix(), done, total, float(begun.get("seconds", 0.0))


def _rows_in(part: Path) -> int:
    try:
        return int(pq.read_metadata(part).num_rows)
    except (OSError, pa.ArrowInvalid):
        return 0  # still being written, or just committed


def _next(run: Run, finished: list[str], half: list[str]) -> str:
    if half:
        return f"Next: {half[0]} goes on where it stopped; start the same command again."
    if (run.folder / "summary.json").exists():
        return "Nothing is left to do; see summary.json and report.html."
    if not finished:
        return "Next: data/images; nothing is finished yet."
    last = finished[-1]
    return f"Next: {FOLLOWS.get(last) or FOLLOWS.get(last.split('/')[-1]) or 'what follows ' + last}"
