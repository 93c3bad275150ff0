"""Pairs of sentences with people's scores of how alike they are: STS benchmark, SemEval, tables of these columns."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from repair_ray.data.files import expand
from repair_ray.data.records import DataError, Problem
from repair_ray.data.table_files import fields_of, kind_of, lines_of, named_rows_of

Columns = tuple[str, str, str]
# The score, then both sentences, by the names in use.
NAMES: tuple[Columns, ...] = (
    ("score", "sentence1", "sentence2"),
    ("similarity_score", "sentence1", "sentence2"),
    ("similarity", "sentence1", "sentence2"),
    ("label", "sentence1", "sentence2"),
    ("score", "text1", "text2"),
)
# The STS benchmark's own files have no header: genre, file, year, index, score, both sentences, and maybe sources.
BENCHMARK = (4, 5, 6)
INPUT, GOLD = "STS.input", "STS.gs"


@dataclass(frozen=True)
class SentencePair:
    """Two sentences and their score, higher for more alike, on any scale.

    `source` is `file:row`, counted from 1; `subset` the SemEval file that the pair is of, or "".
    """

    first: str
    second: str
    score: float
    source: str
    subset: str = ""


def columns_named(names: str) -> Columns:
    """`score,sentence1,sentence2` as three names. Raises `DataError` for another number of them."""
    parts = tuple(name.strip() for name in names.split(","))
    if len(parts) != 3 or not all(parts):
        raise DataError(f"{names!r} does not name three columns: the score's, then both sentences', between commas")
    return parts[0], parts[1], parts[2]


def read_sts(path: str, columns: Columns | None = None) -> Iterator[SentencePair | Problem]:
    """Stream the pairs of a file, folder, glob or {braces}.

    Formats: CSV or TSV with a header, the STS benchmark's own TSV, three columns without a header (the score first or
    last), SemEval's `STS.input.*` (two sentences between a tab) with `STS.gs.*` beside it, JSON lines, Parquet.
    Problems: bad_record (a row of another form), bad_json, no_score (SemEval leaves the scores of some pairs out),
    bad_score (no finite number), no_text.

    Args:
        columns: names of the score's column and of both sentences'; None: one of `NAMES`.

    Raises:
        DataError: nothing there, unreadable, no such columns (names those found), or an `STS.gs` file that is not there
            or has another number of lines.
    """
    files = expand(path)
    inputs = [file for file in files if INPUT in _name(file)]
    if not inputs and not files:
        raise DataError(f"{path} holds no file")
    for file in inputs or files:
        if inputs:
            yield from _semeval(file)
        elif kind_of(file) in ("parquet", "json_lines"):
            yield from _named(file, columns)
        else:
            yield from _table(file, columns)


def _semeval(file: str) -> Iterator[SentencePair | Problem]:
    folder, slash, name = file.rpartition("/")
    gold = folder + slash + name.replace(INPUT, GOLD)
    try:
        scores = [score for _, score in lines_of(gold)]
    except DataError as error:
        raise DataError(f"{file}: its scores, {GOLD}..., must lie beside it: {error}") from None
    lines = list(lines_of(file))
    if len(lines) != len(scores):
        raise DataError(f"{file} has {len(lines)} lines and {gold} {len(scores)}: they do not belong together")
    subset = name.removeprefix(INPUT).strip(".").removesuffix(".txt") or name
    for (place, line), score in zip(lines, scores, strict=True):
        fields = line.split("\t")
        if len(fields) < 2:
            yield Problem(place, "bad_record", "no tab between two sentences")
        else:
            yield _pair(fields[0], fields[1], score, place, subset)


def _named(file: str, columns: Columns | None) -> Iterator[SentencePair | Problem]:
    chosen = columns
    for row in named_rows_of(file):
        if isinstance(row, Problem):
            yield row
            continue
        place, values = row
        chosen = chosen or _known(list(values))
        if chosen is None or (columns is not None and not set(columns) <= set(values)):
            raise DataError(_unknown(file, list(values), columns))
        if not set(chosen) <= set(values):
            yield Problem(place, "bad_record", f"no {' or no '.join(sorted(set(chosen) - set(values)))}")
            continue
        score, first, second = (values[name] for name in chosen)
        yield _pair(first, second, score, place)


def _table(file: str, columns: Columns | None) -> Iterator[SentencePair | Problem]:
    rows = fields_of(file)
    first = next(rows)
    names = [field.strip() for field in first[1]]
    named = columns or _known(names)
    if named is not None and set(named) <= set(names):
        places: Sequence[int] = [names.index(name) for name in named]
        widths = range(len(names), len(names) + 1)
    else:
        found = None if columns else _without_header(names)
        if found is None:
            raise DataError(_unknown(file, names, columns))
        places, widths = found, range(max(found) + 1, sys.maxsize)
        rows = chain([first], rows)
    for place, fields in rows:
        if len(fields) not in widths:
            yield Problem(place, "bad_record", f"{len(fields)} fields")
            continue
        score, one, other = (fields[at] for at in places)
        yield _pair(one, other, score, place)


def _pair(first: Any, second: Any, score: Any, place: str, subset: str = "") -> SentencePair | Problem:
    texts = [" ".join(text.split()) if isinstance(text, str) else "" for text in (first, second)]
    if not all(texts):
        return Problem(place, "no_text", "a sentence is empty")
    if score is None or (isinstance(score, str) and not score.strip()):
        return Problem(place, "no_score", "nobody has scored this pair")
    value = _number(score)
    if value is None:
        return Problem(place, "bad_score", f"{score!r} is no finite number")
    return SentencePair(texts[0], texts[1], value, place, subset)


def _number(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) and not isinstance(value, bool) else None


def _known(names: Sequence[str]) -> Columns | None:
    return next((columns for columns in NAMES if set(columns) <= set(names)), None)


def _without_header(fields: Sequence[str]) -> tuple[int, int, int] | None:
    """Where score and sentences are in a row of a file without a header, told from its first row."""
    numbers = [_number(field) is not None for field in fields]
    if len(fields) > max(BENCHMARK) and numbers[BENCHMARK[0]]:
        return BENCHMARK
    if len(fields) == 3 and numbers[0]:
        return 0, 1, 2
    return (2, 0, 1) if len(fields) == 3 and numbers[2] else None


def _unknown(file: str, names: Sequence[str], columns: Columns | None) -> str:
    wanted = ", ".join(columns) if columns else "score, sentence1, sentence2"
    return (
        f"{file} has no columns {wanted}; found: {', '.join(names)}. Name the score's column and both sentences', "
        "or give the STS benchmark's own file"
    )


def _name(file: str) -> str:
    return file.rpartition("/")[2]
