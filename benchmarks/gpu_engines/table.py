"""The rows as a page, and as lines for the terminal."""

from __future__ import annotations

from typing import Any

from benchmarks.gpu_engines.meter import Row

COLUMNS = ("part", "engine", "shapes", "dtype", "ms [low, high]", "a second", "TFLOP/s", "of peak", "GB", "besides")


def markdown(record: dict[str, Any]) -> str:
    """All rows of a record, and what is missing."""
    lines = [title(record), "", "| " + " | ".join(COLUMNS) + " |", "|" + "---|" * len(COLUMNS)]
    for part, made in record["parts"].items():
        lines += ["| " + " | ".join([part, *cells(row)]) + " |" for row in made["rows"]]
    return "\n".join([*lines, *("\n" + line for line in unfinished(record))]) + "\n"


def title(record: dict[str, Any]) -> str:
    """The device, and whether the figures mean anything."""
    return f"Engines on {record['device']}" + (f": {record['note']}" if record["note"] else "")


def unfinished(record: dict[str, Any]) -> list[str]:
    """The parts that are not, or not wholly, in the table, each with its reason."""
    return [
        f"{part}: not finished: {made['reason'] or 'cut'}"
        for part, made in record["parts"].items()
        if not made["finished"]
    ]


def line(part: str, row: Row) -> str:
    """One row for the terminal."""
    engine, shapes, dtype, *figures = cells(row)
    named = zip(COLUMNS[4:], figures, strict=True)
    return f"{part}: {engine}, {shapes}, {dtype}: " + ", ".join(f"{name} {text}" for name, text in named if text != "-")


def cells(row: Row) -> list[str]:
    """One row as text, without its part. What was not measured is a dash, or the reason."""
    shapes = ", ".join(f"{name} {_shape(value)}" for name, value in row["shapes"].items())
    head = [row["engine"], shapes, row["dtype"]]
    if row["seconds"] is None:
        return [*head, row["reason"], *["-"] * 5]
    low, middle, high = (1000 * row["seconds"][name] for name in ("low", "median", "high"))
    return [
        *head,
        f"{middle:.4g} [{low:.4g}, {high:.4g}]",
        f"{row['per_second']:.4g} {row['unit']}",
        _number(row["tflops"], "{:.4g}"),
        _number(row["share_of_peak"], "{:.1%}"),
        _number(row["peak_memory_gb"], "{:.1f}"),
        ", ".join(f"{name} {_fact(value)}" for name, value in row["facts"].items()) or "-",
    ]


def _shape(value: Any) -> str:
    return "x".join(map(str, value)) if isinstance(value, list) else str(value)


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)


def _fact(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
