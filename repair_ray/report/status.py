"""`repair-ray status` on a terminal: products, what goes on, rows that were not used, the pools of a stage."""

from __future__ import annotations

import time
from typing import Any

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from repair_ray.report.plain import safe_text, titled
from repair_ray.report.pools import pools_table
from repair_ray.report.results import NOTHING, bad_rows, count, duration

COLOURS = {"finished": "green", "in progress": "cyan", "half-made": "yellow", "missing": "dim"}
# The terminal's height is for what goes on.
BAD_ROWS_SHOWN = 10


def status_view(status: dict[str, Any]) -> RenderableType:
    """All of it; `status` is what `repair_ray.status.status_of` gives."""
    parts: list[RenderableType] = [_products_table(status)]
    working = [product for product in status["products"] if product["state"] in ("in progress", "half-made")]
    shown = working or [product for product in status["products"] if product["figures"]]
    parts += [table for table in (pools_table(shown), _bad_rows_table(status)) if table.row_count]
    return Group(*parts, Text(), headline(status))


def headline(status: dict[str, Any]) -> Text:
    """One or two sentences: does it work, since when not, and how to go on."""
    beat, again = status["heartbeat"], _again(status)
    if beat is None:
        said = {"finished": ("Finished; see summary.json and report.html.", "green")}
        words, style = said.get(status["state"], (f"No process has told of itself here. {again}", "yellow"))
        return safe_text(words, style)
    who = f"process {beat['pid']} on {beat['host']}"
    match status["state"]:
        case "running":
            ahead = -beat["age_seconds"]
            clock = f"; the clock of {beat['host']} is {ahead:.0f} s ahead of this one" if ahead > 30 else ""
            return safe_text(f"Running: {who}, last seen {max(0, -ahead):.0f} s ago{clock}.", "green")
        case "silent":
            since = f"since {_when(beat['beat'])}, {duration(beat['age_seconds'])} ago"
            words = f"Silent {since}: {who} was killed, or its machine is lost. {again}"
            return safe_text(words, "bold red")
        case "stopped":
            return safe_text(f"Stopped at {_when(beat['ended'])}: {beat['error']}. {again}", "bold red")
        case "finished":
            return safe_text(f"Finished at {_when(beat['ended'])}; see summary.json and report.html.", "green")
    return safe_text(f"Ended at {_when(beat['ended'])} without a summary. {again}", "yellow")


def _again(status: dict[str, Any]) -> str:
    beat = status["heartbeat"]
    if beat is None or beat["command"] is None:
        return "Start the same command again: it goes on where it stopped."
    return f"To go on: in {beat['folder']}, {beat['command']}"


def _products_table(status: dict[str, Any]) -> Table:
    table = titled(f"Run {escape(safe_text(status['run']).plain)}")
    table.add_column("product", overflow="fold")
    table.add_column("state", no_wrap=True)
    for name in ("rows or steps", "a second", "time", "to go"):
        table.add_column(name, justify="right", no_wrap=True)
    for product in status["products"]:
        state, seconds, left = product["state"], product["seconds"], product["eta_seconds"]
        table.add_row(
            safe_text(product["name"], "dim" if state == "missing" else ""),
            Text(state, COLOURS[state]),
            _share(product),
            NOTHING if product["rate"] is None else f"{product['rate']:,.1f}",
            NOTHING if seconds is None else duration(seconds),
            NOTHING if left is None else duration(left),
        )
    table.min_width = 72
    return table


def _share(product: dict[str, Any]) -> str:
    done, total = product["done"], product["total"]
    if product["state"] == "missing":
        return NOTHING if total is None else count(total)
    if product["state"] == "finished" or total is None:
        return count(done) if done or product["state"] == "finished" else NOTHING
    return f"{count(done)} of {count(total)}"


def _bad_rows_table(status: dict[str, Any]) -> Table:
    table = titled("Rows that were not used, by reason")
    for name in ("product", "status", "reason"):
        table.add_column(name, overflow="fold")
    table.add_column("rows", justify="right", no_wrap=True)
    found = bad_rows({"stages": status["products"]})
    for row in found[:BAD_ROWS_SHOWN]:
        table.add_row(safe_text(row.stage), safe_text(row.status), safe_text(row.reason), count(row.count))
    if len(found) > BAD_ROWS_SHOWN:
        table.caption = f"{len(found) - BAD_ROWS_SHOWN} other reasons: --json lists all"
    return table


def _when(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))
