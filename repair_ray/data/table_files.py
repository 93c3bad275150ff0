"""Rows of files of texts without pictures: CSV and TSV, JSON lines, Parquet. A fault in a row stays in that row."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from repair_ray.data.files import filesystem, open_text, read_head
from repair_ray.data.readers.csv_lines import SEPARATORS, header, quoted_rows
from repair_ray.data.records import DataError, Problem

Kind = Literal["parquet", "json_lines", "columns", "lines"]
Fields = tuple[str, list[str]]
Named = tuple[str, dict[str, Any]]

SUFFIXES: dict[str, Kind] = {".jsonl": "json_lines", ".ndjson": "json_lines", ".csv": "columns", ".tsv": "columns"}
_BATCH_ROWS = 1024


def kind_of(file: str) -> Kind:
    """What a file holds: Parquet by its content, else by its name; `lines` for a name that says nothing."""
    if read_head(file, 4) == b"PAR1":
        return "parquet"
    name = file.lower()
    return next((kind for suffix, kind in SUFFIXES.items() if name.endswith(suffix)), "lines")


def lines_of(file: str) -> Iterator[tuple[str, str]]:
    """Each line of a text file with its place, `file:line` counted from 1, without its line end.

    Raises:
        DataError: the file cannot be read, or is not UTF-8.
    """
    with open_text(file) as text:
        for number, line in enumerate(text, start=1):
            yield f"{file}:{number}", line.rstrip("\r\n")


def fields_of(file: str) -> Iterator[Fields]:
    """The fields of each row of a CSV or TSV with its place, `file:row` counted from 1; blank rows are left out.

    The separator is a tab where the first row has one, else the one that gives it most fields. Rows between tabs are
    taken as they stand, since the TSV of sentence benchmarks has quotes that open nothing; a field that is quoted as a
    whole loses its quotes.

    Raises:
        DataError: the file cannot be read, is empty, or is not UTF-8.
    """
    with open_text(file) as text:
        first = text.readline()
        if not first.strip():
            raise DataError(f"{file} starts with an empty line: its first row has no column")
        separator = "\t" if "\t" in first else max(SEPARATORS, key=lambda mark: len(header(first, mark)))
        lines = chain([first], text)
        rows = _tabbed(lines) if separator == "\t" else quoted_rows(lines, separator)
        for number, row in enumerate(rows, start=1):
            if any(field.strip() for field in row):
                yield f"{file}:{number}", row


def named_rows_of(file: str) -> Iterator[Named | Problem]:
    """The rows of a Parquet file or of JSON lines as values by name, with their places, `file:row` counted from 1.

    Problems: bad_json (a line that is no object).

    Raises:
        DataError: the file cannot be read.
    """
    if kind_of(file) == "parquet":
        yield from _parquet_rows(file)
        return
    for place, line in lines_of(file):
        if not line.strip():
            continue
        try:
            values = json.loads(line)
        except ValueError as error:
            yield Problem(place, "bad_json", str(error))
            continue
        yield (place, values) if isinstance(values, dict) else Problem(place, "bad_json", "no object")


def _parquet_rows(file: str) -> Iterator[Named]:
    where, inner = filesystem(file)
    try:
        with where.open_input_file(inner) as opened:
            number = 0
            for batch in pq.ParquetFile(opened).iter_batches(_BATCH_ROWS):
                for values in batch.to_pylist():
                    number += 1
                    yield f"{file}:{number}", values
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"cannot read {file} as Parquet: {error}") from None


def columns_of(file: str) -> list[str]:
    """The names of the columns: of Parquet, of the first object of JSON lines, or of a CSV's or TSV's first row."""
    kind = kind_of(file)
    if kind == "parquet":
        where, inner = filesystem(file)
        try:
            return list(pq.read_schema(inner, filesystem=where).names)
        except (OSError, pa.ArrowException) as error:
            raise DataError(f"cannot read {file} as Parquet: {error}") from None
    if kind == "json_lines":
        first = next((row for row in named_rows_of(file) if not isinstance(row, Problem)), None)
        return [] if first is None else list(first[1])
    _, fields = next(fields_of(file))
    return [field.strip() for field in fields]


def _tabbed(lines: Iterable[str]) -> Iterator[list[str]]:
    return ([_unquoted(field) for field in line.rstrip("\r\n").split("\t")] for line in lines)


def _unquoted(field: str) -> str:
    inner = field[1:-1]
    whole = len(field) > 1 and field[0] == field[-1] == '"' and '"' not in inner.replace('""', "")
    return inner.replace('""', '"') if whole else field
