"""A folder of pictures with captions beside them: a.jpg and a.txt or a.json, or Hugging Face's metadata.csv."""

from __future__ import annotations

import csv
import io
import json
import posixpath
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa

from repair_ray.data.files import FolderListing, filesystem, root_of, under_root
from repair_ray.data.readers.annotations import MAX_TEXT, PICTURES, Annotations
from repair_ray.data.readers.base import Reader, ReadOptions
from repair_ray.data.readers.table_rows import TableSource, read_tables
from repair_ray.data.records import DataError, ImageRef, Item, Problem, Record

FILE_NAME = "file_name"
METADATA = ("metadata.csv", "metadata.jsonl")
BESIDE = ("txt", "json")
# Whoever keeps one of these beside pictures without captions of their own has the captions there.
_DATA = (".csv", ".tsv", ".json", ".jsonl", ".txt", ".token", ".parquet", ".arrow", ".tar")


def choose(files: list[str]) -> list[str]:
    """All files, where pictures have captions of their own or a metadata file, or where nothing else has them."""
    pictures = [file for file in files if is_picture(file)]
    names = set(files)
    told = any(_is_metadata(file) for file in files) or any(
        beside in names for file in pictures for beside in _beside(file).values()
    )
    elsewhere = any(file.lower().endswith(_DATA) for file in files)
    return files if pictures and (told or not elsewhere) else []


def detect(head: bytes) -> bool:
    """Always: `choose` has looked at the names, and the first picture may be damaged."""
    return True


def read(path: str, files: list[str], options: ReadOptions) -> Iterator[Item]:
    """One record a picture; its id is its path below the folder.

    A text beside it holds one caption a line; columns are as in `Annotations`. The rows of a metadata file name their
    pictures by "file_name", from the folder that it lies in; columns are as in Parquet. Problems: no_caption, no_image
    (a text without its picture), not_utf8, bad_json, repeated_id, and those of `read_tables`.
    """
    if options.image_root is not None:
        raise DataError(f"data.image_root is set, but {path} is read as a folder of pictures with captions: unset it")
    root = root_of(path, files)
    metadata = _Metadata([file for file in files if _is_metadata(file)], root)
    yield from metadata.read(path, options)
    # What a metadata file tells is found there, and its columns are no keys of a .json.
    yield from _read_beside(path, files, root, metadata.named, ReadOptions() if metadata.files else options)


def is_picture(file: str) -> bool:
    return file.rpartition(".")[2].lower() in PICTURES


def _read_beside(path: str, files: list[str], root: str, told: set[str], options: ReadOptions) -> Iterator[Item]:
    annotations = Annotations(options)
    listing = FolderListing()
    used: set[str] = set()
    ids: set[str] = set()
    for file in filter(is_picture, files):
        name, source = file.removeprefix(root), f"{file}:0"
        uri = under_root(root or ".", name)
        beside = {kind: text for kind, text in _beside(file).items() if listing.has(text)}
        used.update(beside.values())
        if uri in told:
            continue
        try:
            texts = {kind.rpartition(".")[2]: _content(text) for kind, text in reversed(beside.items())}
        except ValueError as error:
            yield Problem(source, "too_large", str(error))
            continue
        found = annotations.read(texts, source, name, lines=True)
        if isinstance(found, Problem):
            yield found
            continue
        image_id = found.image_id or name
        if image_id in ids:
            yield Problem(source, "repeated_id", f"{image_id} already came; only the first is used")
            continue
        ids.add(image_id)
        yield Record(image_id, ImageRef(uri), found.captions, found.split, found.group, source)
    for file in files:
        if file.lower().endswith((".txt", ".json")) and file not in used and not _is_metadata(file):
            yield Problem(f"{file}:0", "no_image", f"there is no picture of this name ({', '.join(PICTURES)})")
    annotations.check_used(path)


class _Metadata:
    """The metadata files of one data set, and which pictures they name."""

    def __init__(self, files: list[str], root: str) -> None:
        self.files = files
        self.named: set[str] = set()
        self._root = root
        self._tables = {file: self._table(file) for file in files}

    def read(self, path: str, options: ReadOptions) -> Iterator[Item]:
        columns = replace(options, image_root=self._root or ".", image_column=options.image_column or FILE_NAME)
        source = TableSource(
            schema=lambda file: self._tables[file].schema,
            batches=lambda file, names, rows: iter(self._tables[file].select(names).to_batches(max_chunksize=rows)),
        )
        yield from read_tables(path, self.files, columns, source)

    def _table(self, file: str) -> pa.Table:
        try:
            text = _content(file, limit=None).decode("utf-8-sig")
            rows = list(csv.DictReader(io.StringIO(text, newline=""))) if file.endswith(".csv") else _json_lines(text)
        except (ValueError, csv.Error) as error:
            raise DataError(f"{file} is not readable: {error}") from None
        folder = posixpath.dirname(file.removeprefix(self._root))
        for row in rows:
            name = row.get(FILE_NAME)
            if isinstance(name, str) and name:
                row[FILE_NAME] = posixpath.join(folder, name)
                self._note(row[FILE_NAME])
        columns = dict.fromkeys(key for row in rows for key in row if isinstance(key, str))
        if rows and FILE_NAME not in columns:
            raise DataError(f"{file} has no column {FILE_NAME!r}; found: {', '.join(columns)}")
        try:
            return pa.table({key: pa.array([row.get(key) for row in rows]) for key in columns or (FILE_NAME,)})
        except (pa.ArrowException, UnicodeEncodeError) as error:
            raise DataError(f"{file}: a column mixes kinds of values: {error}") from None

    def _note(self, name: str) -> None:
        try:
            self.named.add(under_root(self._root or ".", name))
        except ValueError:
            return  # the row says so


def _json_lines(text: str) -> list[dict[str, Any]]:
    rows = []
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            row = json.loads(line)
            if not isinstance(row, dict):
                raise ValueError(f"line {number} is no JSON object")
            rows.append(row)
    return rows


def _is_metadata(file: str) -> bool:
    return file.rpartition("/")[2] in METADATA


def _beside(file: str) -> dict[str, str]:
    """Where a picture's texts may lie, by kind: under its name without the extension, or with it (a.jpg.txt)."""
    stem = file.rpartition(".")[0]
    return {kind: f"{stem}.{kind}" for kind in BESIDE} | {f"full.{kind}": f"{file}.{kind}" for kind in BESIDE}


def _content(file: str, limit: int | None = MAX_TEXT) -> bytes:
    """Raises ValueError for more bytes than `limit`, and DataError where the file cannot be read."""
    where, inner = filesystem(file)
    try:
        with where.open_input_file(inner) as stream:
            if limit is not None and stream.size() > limit:
                raise ValueError(f"{file} has {stream.size()} bytes")
            return bytes(stream.read())
    except OSError as error:
        raise DataError(f"cannot read {file}: {error}") from None


READER = Reader(
    name="image_folder",
    suffixes=tuple(f".{suffix}" for suffix in PICTURES),
    detect=detect,
    read=read,
    chooses=choose,
    layout=True,
    one_file_a_row=True,
)
