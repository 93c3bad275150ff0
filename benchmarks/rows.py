"""The rows of a benchmark: how they look, and where they are kept."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypedDict, cast

from rich.table import Table

from repair_ray.run import read_json, write_json

RESULTS = Path(__file__).parent / "results"
MIB = 2**20


class Row(TypedDict):
    """One comparison. `ratio` above 1 is better than the peer; `n` is what `note` says it counts."""

    name: str
    ours: float
    peer: float
    peer_name: str
    ratio: float
    unit: str
    n: int
    note: str


COLUMNS = tuple(Row.__annotations__)


class Skipped(Exception):
    """A comparison that cannot be made here; the message says why, and how it can be."""


def keep(rows: Iterable[Row], path: Path) -> None:
    """Put rows in place of those of the same names into `path`.json and `path`.md."""
    made = list(rows)
    names = {row["name"] for row in made}
    kept = [row for row in read_rows(path) if row["name"] not in names] + made
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path.with_suffix(".json"), kept)
    path.with_suffix(".md").write_text(markdown(kept), encoding="utf-8")


def read_rows(path: Path) -> list[Row]:
    """The rows of `path`.json; none where there is no such file."""
    return cast(list[Row], read_json(path.with_suffix(".json")) or [])


def markdown(rows: Sequence[Row]) -> str:
    """For the README."""
    lines = ["| " + " | ".join(COLUMNS) + " |", "|---" * len(COLUMNS) + "|"]
    return "\n".join([*lines, *("| " + " | ".join(_cells(row)) + " |" for row in rows)]) + "\n"


def view(rows: Sequence[Row]) -> Table:
    """For the terminal."""
    shown = Table()
    for column in COLUMNS:
        shown.add_column(column)
    for row in rows:
        shown.add_row(*_cells(row))
    return shown


def _cells(row: Row) -> list[str]:
    values: dict[str, Any] = dict(row)
    return [str(values[column]) for column in COLUMNS]
