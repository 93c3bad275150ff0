"""Karpathy's split files (dataset_flickr8k.json, dataset_flickr30k.json, dataset_coco.json)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice
from typing import Any

from repair_ray.data.files import read_head
from repair_ray.data.readers.base import Reader, ReadOptions, refuse_columns
from repair_ray.data.readers.choose import by_content
from repair_ray.data.readers.json_stream import entries, shape
from repair_ray.data.readers.roots import SAMPLE, Pictures, picture_id
from repair_ray.data.records import Item, Problem, Record, canonical_split, clean_captions


def detect(head: bytes) -> bool:
    """An object with "images" whose entries hold "sentences"; COCO's own JSON has "annotations" instead."""
    found = shape(head)
    return found.kind == "object" and bool(found.of_entries("images") & {"sentences", "sentids"})


def read(path: str, files: list[str], options: ReadOptions) -> Iterator[Item]:
    """Each entry of "images", a list or an object of entries, is one record with the captions inside it.

    `imgid` is neither used as an index nor as an id: files leave numbers out. The image id is filepath/filename.
    Problems: missing_image, no_caption, path_escapes_root, repeated_id, bad_record.
    """
    refuse_columns(options, path, "a Karpathy JSON")
    found = Pictures(path, options.image_root)
    seen: set[str] = set()
    for file in files:
        coming = enumerate(entries(file, "images"))
        first = list(islice(coming, SAMPLE))
        root = found.root(file, [_name(entry) for _, entry in first])
        for index, entry in chain(first, coming):
            yield _item(entry, f"{file}:{index}", root, found, seen)


def _name(entry: Any) -> str:
    """filepath/filename, or "" where an entry has none."""
    name = entry.get("filename") if isinstance(entry, dict) else None
    if not isinstance(name, str) or not name:
        return ""
    folder = entry.get("filepath")
    return f"{folder}/{name}" if isinstance(folder, str) and folder else name


def _item(entry: Any, source: str, root: str, found: Pictures, seen: set[str]) -> Item:
    name = _name(entry)
    if not name:
        keys = sorted(entry) if isinstance(entry, dict) else type(entry).__name__
        return Problem(source, "bad_record", f'no "filename" (found: {keys})')
    place = found.find(root, name, source)
    if isinstance(place, Problem) and place.reason == "path_escapes_root":
        return place
    image_id = picture_id(name) if isinstance(place, Problem) else place[0]
    if image_id in seen:
        return Problem(source, "repeated_id", f"{image_id} already came; only its first entry is used")
    seen.add(image_id)
    sentences = entry.get("sentences")
    raw = [s.get("raw") for s in sentences if isinstance(s, dict)] if isinstance(sentences, list) else []
    captions = clean_captions(raw)
    if not captions:
        return Problem(source, "no_caption", f"{image_id} has no non-empty sentence")
    if isinstance(place, Problem):
        return place
    return Record(image_id, place[1], captions, canonical_split(entry.get("split")), None, source)


READER = Reader(
    name="karpathy",
    suffixes=(".json",),
    detect=detect,
    read=read,
    chooses=by_content((".json",), lambda file: detect(read_head(file))),
)
