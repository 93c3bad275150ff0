"""A list of word pairs that are taken for each other, as people, a dictionary or another model made it."""

from __future__ import annotations

import csv
import hashlib

import pyarrow as pa
import pyarrow.parquet as pq

from repair_ray.data.files import filesystem, open_text
from repair_ray.data.records import DataError

COLUMNS = ("word", "other")


def read_word_pairs(path: str) -> list[tuple[str, str]]:
    """Pairs from a CSV, a TSV or a Parquet file with the columns `word` and `other`; blank cells are passed over.

    Raises:
        DataError: unreadable, other columns, a pair of one word with itself, or no pair at all.
    """
    rows = _parquet(path) if path.endswith(".parquet") else _csv(path)
    pairs = []
    for number, (word, other) in enumerate(rows, start=1):
        word, other = (word or "").strip(), (other or "").strip()
        if not word or not other:
            continue
        if word.casefold() == other.casefold():
            raise DataError(f"{path}, pair {number}: {word!r} is paired with itself")
        pairs.append((word, other))
    if not pairs:
        raise DataError(f"{path} holds no pair of words")
    return pairs


def file_digest(path: str) -> str:
    """`sha256:<16 hex digits>` of a file's content. Raises DataError where there is none."""
    where, inner = filesystem(path)
    try:
        with where.open_input_stream(inner) as stream:
            return f"sha256:{hashlib.sha256(stream.readall()).hexdigest()[:16]}"
    except OSError as error:
        raise DataError(f"cannot read {path}: {error}") from None


def _csv(path: str) -> list[tuple[str | None, str | None]]:
    try:
        with open_text(path) as file:
            head = file.readline()
            names = [name.strip().lower() for name in next(csv.reader([head], delimiter=_separator(head)), [])]
            _check(names, path)
            places = [names.index(name) for name in COLUMNS]
            rows = csv.reader(file, delimiter=_separator(head))
            return [tuple(row[place] if place < len(row) else None for place in places) for row in rows]  # type: ignore[misc]
    except csv.Error as error:
        raise DataError(f"cannot read {path} as CSV: {error}") from None


def _separator(head: str) -> str:
    return "\t" if "\t" in head else ";" if ";" in head and "," not in head else ","


def _parquet(path: str) -> list[tuple[str | None, str | None]]:
    where, inner = filesystem(path)
    try:
        table = pq.read_table(inner, filesystem=where)
    except (OSError, pa.ArrowInvalid) as error:
        raise DataError(f"cannot read {path} as Parquet: {error}") from None
    _check(table.column_names, path)
    columns = [table[name].cast(pa.string()).to_pylist() for name in COLUMNS]
    return list(zip(*columns, strict=True))


def _check(names: list[str], path: str) -> None:
    missing = [name for name in COLUMNS if name not in names]
    if missing:
        raise DataError(f"{path} has no column {missing[0]!r}: word and other are needed; found: {', '.join(names)}")
