"""Texts to train on: a sentence a line, or a column of a table. Plain values; no pictures, no Ray."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from repair_ray.data.files import expand
from repair_ray.data.records import DataError, Problem, clean_captions
from repair_ray.data.table_files import columns_of, fields_of, kind_of, lines_of, named_rows_of

COLUMN_NAMES = ("text", "sentence", "caption", "captions", "sentence1")


@dataclass(frozen=True)
class Sentence:
    """A text, where it lies (`file:row` counted from 1), and the group of texts that say the same (None: itself)."""

    text: str
    source: str
    group: str | None = None


def read_texts(path: str, column: str | None = None) -> Iterator[Sentence | Problem]:
    """Stream the texts of a file, folder, glob or {braces}: CSV, TSV, JSON lines, Parquet, or a sentence a line.

    A cell that is a list gives each of its texts, as one group. Runs of white space are collapsed. Problems: no_text,
    bad_record (a row without that column), bad_json.

    Args:
        column: where the texts are; None: one called text, sentence or caption, or the only one. With a column, a file
            of any name but Parquet's and JSON lines' is read as CSV or TSV.

    Raises:
        DataError: nothing there, unreadable, or no such column; names the columns that were found.
    """
    files = expand(path)
    if not files:
        raise DataError(f"{path} holds no file")
    for file in files:
        kind = kind_of(file)
        if kind == "lines" and column is None:
            for place, line in lines_of(file):
                yield from _sentences(line, place)
        elif kind in ("parquet", "json_lines"):
            yield from _named(file, _chosen(file, column))
        else:
            yield from _columns(file, _chosen(file, column))


def _named(file: str, column: str) -> Iterator[Sentence | Problem]:
    for row in named_rows_of(file):
        if isinstance(row, Problem):
            yield row
            continue
        place, values = row
        if column not in values:
            yield Problem(place, "bad_record", f"no {column!r}")
            continue
        yield from _sentences(values[column], place)


def _columns(file: str, column: str) -> Iterator[Sentence | Problem]:
    rows = fields_of(file)
    _, names = next(rows)
    at = [name.strip() for name in names].index(column)
    for place, fields in rows:
        if len(fields) != len(names):
            yield Problem(place, "bad_record", f"{len(fields)} fields, and {len(names)} columns")
            continue
        yield from _sentences(fields[at], place)


def _sentences(value: Any, place: str) -> Iterator[Sentence | Problem]:
    texts = clean_captions(value)
    if not texts:
        yield Problem(place, "no_text", "nothing but white space" if isinstance(value, str) else "no text")
    group = place if len(texts) > 1 else None
    for text in texts:
        yield Sentence(text, place, group)


def _chosen(file: str, column: str | None) -> str:
    names = columns_of(file)
    if column is not None:
        if column not in names:
            raise DataError(f"{file} has no column {column!r}; its columns: {', '.join(names)}")
        return column
    usual = [name for name in COLUMN_NAMES if name in names]
    if usual or len(names) == 1:
        return (usual or names)[0]
    raise DataError(f"which column of {file} holds the texts? Name it (texts.column); found: {', '.join(names)}")
