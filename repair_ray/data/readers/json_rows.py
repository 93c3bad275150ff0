"""JSON lists and JSON lines of objects that name a picture and its captions: BLIP, ALBEF, CUSA, neuraltalk2.

[{"image": "val2014/x.jpg", "caption": "..." or ["...", ...], "image_id": "coco_1"}, ...]
[{"image_path": "/photos/x.jpg", "caption": "...", "image_id": "1"}, ...]
[{"file_path": "x.jpg", "captions": ["...", ...], "id": 1}, ...]
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice
from typing import Any

import pyarrow as pa

from repair_ray.data.files import read_head
from repair_ray.data.readers.base import Reader, ReadOptions
from repair_ray.data.readers.choose import by_content
from repair_ray.data.readers.json_stream import entries, lines, shape
from repair_ray.data.readers.named_rows import NamedRow, join_rows
from repair_ray.data.readers.parquet_columns import CAPTION_NAMES, IMAGE_NAMES, Columns, choose_columns
from repair_ray.data.records import DataError, Item, Problem, canonical_split, clean_captions

SUFFIXES = (".json", ".jsonl", ".ndjson")

# Entries whose keys are looked at to choose those to read.
SAMPLE = 100


def detect(head: bytes) -> bool:
    """A list of objects, JSON lines, or an object of objects that name a picture and a caption."""
    found = shape(head)
    return bool(found.keys) and (found.kind in ("list", "lines") or (found.kind == "object" and _known(head)))


def read(path: str, files: list[str], options: ReadOptions) -> Iterator[Item]:
    """Entries of one picture become one record, wherever they stand; keys are chosen as Parquet's columns are.

    The image id is the picture's name; an "image_id" counts only as data.id_column. A source is "file:entry".
    Problems: bad_record (an entry that is no object, a line that is no JSON), and those of `join_rows`.
    """
    yield from join_rows((row for file in files for row in _rows(file, options)), path, files, options)


def _rows(file: str, options: ReadOptions) -> Iterator[NamedRow | Problem]:
    by_line = shape(read_head(file)).kind == "lines"
    coming = enumerate(lines(file) if by_line else entries(file))
    first = list(islice(coming, SAMPLE))
    schema = _schema([entry for _, entry in first])
    if not len(schema):
        faults = [str(entry) for _, entry in first if isinstance(entry, ValueError)]
        raise DataError(f"{file} holds no JSON object ({faults[0] if faults else f'{len(first)} entries'})")
    columns = choose_columns(schema, options, file)
    for index, entry in chain(first, coming):
        if isinstance(entry, dict):
            yield _row(entry, columns, options, file, index)
        else:
            detail = str(entry) if isinstance(entry, ValueError) else f"{type(entry).__name__}, not an object"
            yield Problem(f"{file}:{index}", "bad_record", detail)


def _row(entry: dict[str, Any], columns: Columns, options: ReadOptions, file: str, index: int) -> NamedRow | Problem:
    name = entry.get(columns.image)
    if not isinstance(name, str) or not name:
        return Problem(f"{file}:{index}", "no_image", f"no name of a picture in {columns.image!r} ({name!r:.100})")
    group = entry.get(columns.group) if columns.group else None
    key = entry.get(columns.id) if options.id_column and columns.id else None
    return NamedRow(
        name,
        [text for column in columns.captions for text in clean_captions(entry.get(column))],
        file,
        index,
        canonical_split(entry.get(columns.split)) if columns.split else None,
        None if group is None else str(group),
        key=None if key is None else str(key),
    )


def _schema(sample: list[Any]) -> pa.Schema:
    """The keys of the first entries, as columns: text, lists of text, and whatever else there is."""
    kinds: dict[str, pa.DataType] = {}
    for entry in sample:
        for key, value in entry.items() if isinstance(entry, dict) else ():
            if value is not None and value != []:
                kinds.setdefault(key, _kind(value))
    return pa.schema(kinds.items())


def _kind(value: Any) -> pa.DataType:
    if isinstance(value, str):
        return pa.string()
    if isinstance(value, list):
        return pa.list_(_kind(value[0]) if value else pa.null())
    if isinstance(value, bool):
        return pa.bool_()
    if isinstance(value, int):
        return pa.int64()
    return pa.struct([]) if isinstance(value, dict) else pa.float64()


def _known(head: bytes) -> bool:
    keys = shape(head).of_entries()
    return not keys.isdisjoint(IMAGE_NAMES) and not keys.isdisjoint(CAPTION_NAMES)


READER = Reader(
    name="json",
    suffixes=SUFFIXES,
    detect=detect,
    read=read,
    chooses=by_content(SUFFIXES, lambda file: _known(read_head(file))),
)
