"""CSV and TSV: Kaggle's captions.txt and results.csv, open_clip's and NegCLIP's TSV, CLIP_benchmark's text files."""

from __future__ import annotations

import ast
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from repair_ray.data.files import open_text, read_head
from repair_ray.data.readers.base import Reader, ReadOptions
from repair_ray.data.readers.choose import by_content
from repair_ray.data.readers.csv_lines import SEPARATORS, bare_rows, header, is_bare, quoted_rows
from repair_ray.data.readers.named_rows import NamedRow, join_rows
from repair_ray.data.readers.parquet_columns import CAPTION_NAMES, IMAGE_NAMES, choose_columns
from repair_ray.data.records import Item, Problem, canonical_split, clean_captions

SUFFIXES = (".csv", ".tsv", ".txt")

# Kaggle's results.csv has one row without the separator after the number: `2199200615.jpg| 4   A dog runs`.
_NUMBER_THEN_TEXT = re.compile(r"\s*(\d+)\s+(\S.*)", re.DOTALL)
_NUMBER_NAMES = ("comment_number", "caption_number", "sentence_number")


@dataclass(frozen=True)
class _Layout:
    """Places of what to read in the fields of a row."""

    separator: str
    width: int
    image: int
    captions: tuple[int, ...]
    split: int | None
    group: int | None
    key: int | None
    number: int | None
    bare: bool


def detect(head: bytes) -> bool:
    """Text whose first line splits into columns."""
    line = _first_line(head)
    return any(len(header(line, separator)) > 1 for separator in SEPARATORS)


def read(path: str, files: list[str], options: ReadOptions) -> Iterator[Item]:
    """Rows of one picture become one record, wherever they stand. The first line names the columns.

    Columns are chosen as Parquet's are; the separator is the one that gives such columns. The image id is the
    picture's name; a column called "id" counts only as data.id_column. A row with more fields than columns has the
    separator in its caption, where that comes last. A cell that is a list literal, ['a', 'b'], is several captions.
    Problems: bad_record (a row with too few or too many fields), no_image, and those of `join_rows`.
    """
    rows = (row for file in files for row in _rows(file, options))
    yield from join_rows(rows, path, files, options, use_lists=True)


def columns_found(head: bytes) -> str:
    """How the first line splits, for messages about files that no reader takes."""
    line = _first_line(head)
    separator = _separator(line, ReadOptions())
    names = header(line, separator)
    if len(names) < 2:
        return f"no {', '.join(SEPARATORS.values())} in it"
    return f"columns at {SEPARATORS[separator]}: {', '.join(names)}"


def _rows(file: str, options: ReadOptions) -> Iterator[NamedRow | Problem]:
    layout = _layout(file, options)
    with open_text(file) as text:
        next(text)
        rows = bare_rows(text) if layout.bare else quoted_rows(text, layout.separator)
        index = -1
        for fields in rows:
            if fields:
                index += 1
                yield _row(_fit(fields, layout), layout, file, index)


def _row(fields: list[str], layout: _Layout, file: str, index: int) -> NamedRow | Problem:
    needed = max(layout.image, *layout.captions)
    if len(fields) > layout.width or len(fields) <= needed:
        detail = (
            f"{len(fields)} fields where the header names {layout.width} "
            f"(separator: {SEPARATORS[layout.separator]}): {layout.separator.join(fields)[:100]!r}"
        )
        return Problem(f"{file}:{index}", "bad_record", detail)
    name = fields[layout.image].strip()
    if not name:
        return Problem(f"{file}:{index}", "no_image", "the cell with the picture's name is empty")
    number = _cell(fields, layout.number)
    return NamedRow(
        name,
        [text for place in layout.captions for text in _captions(fields[place])],
        file,
        index,
        canonical_split(_cell(fields, layout.split)),
        _cell(fields, layout.group),
        int(number) if number and number.isdecimal() else None,
        _cell(fields, layout.key),
    )


def _fit(fields: list[str], layout: _Layout) -> list[str]:
    """The fields of a row, brought to the header's number where it is plain how."""
    width, caption = layout.width, max(layout.captions)
    if len(fields) > width and not any(field.strip() for field in fields[width:]):
        return fields[:width]
    if len(fields) > width and caption == width - 1:
        return [*fields[:caption], layout.separator.join(fields[caption:])]
    if len(fields) == width - 1 and layout.number == caption - 1 == width - 2:
        parts = _NUMBER_THEN_TEXT.fullmatch(fields[-1])
        if parts:
            return [*fields[:-1], parts[1], parts[2]]
    return fields


def _cell(fields: list[str], place: int | None) -> str | None:
    return fields[place].strip() or None if place is not None and place < len(fields) else None


def _captions(cell: str) -> list[str]:
    text = cell.strip()
    if text[:2] in ("['", '["') and text[-1:] == "]":
        try:
            return clean_captions(ast.literal_eval(text))
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            pass  # a caption that looks like a list
    return clean_captions(text)


def _layout(file: str, options: ReadOptions) -> _Layout:
    head = read_head(file)
    line = _first_line(head)
    separator = _separator(line, options)
    names = header(line, separator)
    schema = pa.schema([(name, pa.string()) for name in dict.fromkeys(names) if name])
    columns = choose_columns(schema, options, f"{file} (separator: {SEPARATORS[separator]})")

    def place(name: str | None) -> int | None:
        return names.index(name) if name else None

    captions = tuple(names.index(name) for name in columns.captions)
    pair = separator == "," and len(names) == 2 and names.index(columns.image) == 0 and captions == (1,)
    return _Layout(
        separator,
        len(names),
        names.index(columns.image),
        captions,
        place(columns.split),
        place(columns.group),
        place(columns.id) if options.id_column else None,
        next((names.index(name) for name in _NUMBER_NAMES if name in names), None),
        pair and is_bare(io.StringIO(head.decode("utf-8-sig", "replace"))),
    )


def _separator(line: str, options: ReadOptions) -> str:
    """The separator that gives an image and a caption column; else the one that gives the most columns."""

    def score(separator: str) -> tuple[int, int]:
        names = header(line, separator)
        asked = [options.image_column in names, options.caption_column in names]
        known = [not set(IMAGE_NAMES).isdisjoint(names), not set(CAPTION_NAMES).isdisjoint(names)]
        return sum(a or k for a, k in zip(asked, known, strict=True)), len(names)

    return max(SEPARATORS, key=score)


def _first_line(head: bytes) -> str:
    """The header, or "" where the bytes are no text or are JSON."""
    text = head.removeprefix(b"\xef\xbb\xbf")
    if b"\0" in head or text.lstrip()[:1] in (b"{", b"[", b"<"):
        return ""
    lines = re.split(r"\r\n|\n|\r", text.decode("utf-8", "replace"), maxsplit=1)
    return lines[0]


def _known(file: str) -> bool:
    line = _first_line(read_head(file))
    tables = [set(header(line, separator)) for separator in SEPARATORS]
    return any(not t.isdisjoint(IMAGE_NAMES) and not t.isdisjoint(CAPTION_NAMES) for t in tables)


READER = Reader(name="csv", suffixes=SUFFIXES, detect=detect, read=read, chooses=by_content(SUFFIXES, _known))
