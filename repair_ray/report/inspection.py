"""The tables of `repair-ray data inspect`."""

from __future__ import annotations

from typing import Any

from rich.table import Table

from repair_ray.report.plain import safe_text, titled
from repair_ray.report.results import NOTHING, count, points

CAPTIONS_SHOWN = 5


def inspection_tables(facts: dict[str, Any]) -> list[Table]:
    """What `inspect` found; parts without a row are left out. Captions and names are shown as they are."""
    made = [_found(facts), _examples(facts["examples"])]
    made.append(_problems("Rows that cannot be used", facts["problems"]))
    made.append(_problems("Pictures that cannot be used", facts["pictures"]["problems"]))
    return [table for table in made if table.row_count]


def _found(facts: dict[str, Any]) -> Table:
    pictures, captions = facts["pictures"], facts["captions_a_picture"]
    splits = ", ".join(f"{name} {count(rows)}" for name, rows in facts["splits"].items())
    rows = [
        ("format", facts["format"]),
        ("files", count(facts["files"])),
        (
            "usable rows",
            count(facts["rows"]) + ("" if facts["complete"] else " (of the first; --limit ended the reading)"),
        ),
        ("by split", splits or NOTHING),
        ("captions", count(facts["captions"])),
        (
            "captions a picture",
            f"{captions['min']} to {captions['max']}, mean {points(captions['mean'], 2)}" if captions else NOTHING,
        ),
        ("pictures opened", f"{count(pictures['opened'])}, usable: {count(pictures['usable'])}"),
        ("width", _range(pictures["width"])),
        ("height", _range(pictures["height"])),
    ]
    table = titled("")
    table.title = safe_text(f"\n{facts['path']}".strip(), "bold")
    table.add_column("fact", no_wrap=True)
    table.add_column("value", overflow="fold")
    for name, value in rows:
        table.add_row(name, safe_text(value))
    return table


def _examples(examples: list[dict[str, Any]]) -> Table:
    table = titled("The first rows")
    for name in ("picture", "split", "captions"):
        table.add_column(name, overflow="fold")
    for example in examples:
        for number, text in enumerate(example["captions"][:CAPTIONS_SHOWN]):
            first = number == 0
            table.add_row(
                safe_text(example["image_id"] if first else ""),
                safe_text((example["split"] or NOTHING) if first else ""),
                safe_text(text),
            )
        more = len(example["captions"]) - CAPTIONS_SHOWN
        if more > 0:
            table.add_row("", "", safe_text(f"and {more} more", "dim"))
    return table


def _problems(title: str, problems: list[dict[str, Any]]) -> Table:
    table = titled(title)
    table.add_column("reason", overflow="fold")
    table.add_column("rows", justify="right", no_wrap=True)
    table.add_column("the first", overflow="fold")
    for problem in problems:
        first = f"{problem['first']['source']}: {problem['first']['detail']}"
        table.add_row(safe_text(problem["reason"]), count(problem["count"]), safe_text(first))
    return table


def _range(found: dict[str, int] | None) -> str:
    return NOTHING if found is None else f"{found['min']} to {found['max']} px"
