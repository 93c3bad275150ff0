"""COCO's caption files (captions_train2017.json): a list of pictures and one of captions, joined by number."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from repair_ray.data.files import read_head, read_tail
from repair_ray.data.readers.base import Reader, ReadOptions, refuse_columns
from repair_ray.data.readers.choose import by_content
from repair_ray.data.readers.json_stream import entries, shape
from repair_ray.data.readers.named_rows import NamedRow, join_rows
from repair_ray.data.records import DataError, Item, Problem, canonical_split, clean_captions

# Annotations after which a file without any caption is given up.
LOOKED_AT = 1000


def detect(head: bytes) -> bool:
    """An object whose "images" have "file_name", or whose "annotations" have "caption", whichever comes first."""
    found = shape(head)
    pictures, notes = found.of_entries("images"), found.of_entries("annotations")
    named = "file_name" in pictures and not pictures & {"sentences", "sentids"}
    return found.kind == "object" and (named or ("caption" in notes and "image_id" in notes))


def read(path: str, files: list[str], options: ReadOptions) -> Iterator[Item]:
    """One record for each entry of "images" that an annotation has a caption for; captions in the file's order.

    The image id is "file_name"; a source is the place in "images", or, of an annotation, "file:annotations:row".
    Problems: bad_record, repeated_id (two pictures with one number), unknown_image (an annotation of a picture
    that is not listed), no_caption (a picture without annotations), and those of `join_rows`.

    Raises DataError: no annotation has a caption, as in instances_train2017.json.
    """
    refuse_columns(options, path, "a COCO JSON")
    yield from join_rows((row for file in files for row in _rows(file)), path, files, options)


def _rows(file: str) -> Iterator[NamedRow | Problem]:
    rows: dict[Any, NamedRow] = {}
    for index, entry in enumerate(entries(file, "images")):
        row = _picture(entry, file, index)
        if isinstance(row, Problem):
            yield row
        elif entry["id"] in rows:
            yield Problem(row.source, "repeated_id", f"id {entry['id']} already came; only its first entry is used")
        else:
            rows[entry["id"]] = row
    keys: set[str] = set()
    captioned = False
    for index, note in enumerate(entries(file, "annotations")):
        captions = clean_captions(note.get("caption")) if isinstance(note, dict) else []
        captioned = captioned or bool(captions)
        if captions and _is_key(note.get("image_id")) and note["image_id"] in rows:
            rows[note["image_id"]].captions.extend(captions)
            continue
        source = f"{file}:annotations:{index}"
        if not captions:
            keys.update(note if isinstance(note, dict) else ())
            yield Problem(source, "bad_record", 'an annotation without a "caption"')
            if not captioned and index >= LOOKED_AT:
                break
        else:
            yield Problem(source, "unknown_image", f'image_id {note.get("image_id")!r} is not in "images"')
    if not captioned:
        has = f"its annotations hold {', '.join(sorted(keys))}" if keys else "it has no annotations"
        raise DataError(f"{file} is a COCO JSON without captions ({has}); take captions_*.json")
    yield from rows.values()


def _picture(entry: Any, file: str, index: int) -> NamedRow | Problem:
    name = entry.get("file_name") if isinstance(entry, dict) else None
    if not isinstance(name, str) or not name or not _is_key(entry.get("id")):
        keys = sorted(entry) if isinstance(entry, dict) else type(entry).__name__
        return Problem(f"{file}:{index}", "bad_record", f'no "file_name" or no "id" (found: {keys})')
    return NamedRow(name, [], file, index, canonical_split(entry.get("split")))


def _is_key(value: Any) -> bool:
    return isinstance(value, int | str)


def _fits(file: str) -> bool:
    # instances_*.json begin alike; where the captions are tells the end, or the name.
    return detect(read_head(file)) and ("caption" in file.rpartition("/")[2] or b'"caption"' in read_tail(file))


READER = Reader(name="coco", suffixes=(".json",), detect=detect, read=read, chooses=by_content((".json",), _fits))
