"""Karpathy's split files (dataset_flickr8k.json, dataset_flickr30k.json, dataset_coco.json)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from repair_ray.data.files import FolderListing, filesystem, under_root
from repair_ray.data.readers.base import Reader, ReadOptions
from repair_ray.data.records import (
    DataError,
    ImageRef,
    Item,
    Problem,
    Record,
    canonical_split,
    clean_captions,
)


def detect(head: bytes) -> bool:
    """An object with "images" whose entries hold "sentences"; COCO's own JSON has "annotations" instead."""
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    return text.startswith(b"{") and b'"images"' in text and (b'"sentences"' in text or b'"sentids"' in text)


def read(path: str, files: list[str], options: ReadOptions) -> Iterator[Item]:
    """Each entry of "images" is one record with the captions inside it.

    `imgid` is neither used as an index nor as an id: files leave numbers out. The image id is filepath/filename.
    Problems: missing_image, no_caption, path_escapes_root, repeated_id, bad_record.
    """
    for name in ("image_column", "caption_column", "group_column", "split_column", "id_column"):
        if getattr(options, name):
            raise DataError(
                f"data.{name} names a column of a table; {path} is a Karpathy JSON, which has none: unset it"
            )
    listing = FolderListing()
    seen: set[str] = set()
    for file in files:
        root = options.image_root or file.rpartition("/")[0] or "."
        for index, entry in enumerate(_entries(file)):
            yield _item(entry, f"{file}:{index}", root, listing, seen)


def _entries(file: str) -> list[Any]:
    where, inner = filesystem(file)
    try:
        with where.open_input_file(inner) as stream:
            loaded = json.loads(bytes(stream.read()).decode("utf-8-sig"))
    except (OSError, ValueError) as error:
        raise DataError(f"{file} is not readable JSON: {error}") from None
    entries = loaded.get("images") if isinstance(loaded, dict) else None
    if not isinstance(entries, list):
        found = sorted(loaded) if isinstance(loaded, dict) else type(loaded).__name__
        raise DataError(f'{file} has no list "images" (found: {found}); a Karpathy file is {{"images": [...]}}')
    return entries


def _item(entry: Any, source: str, root: str, listing: FolderListing, seen: set[str]) -> Item:
    name = entry.get("filename") if isinstance(entry, dict) else None
    if not isinstance(name, str) or not name:
        keys = sorted(entry) if isinstance(entry, dict) else type(entry).__name__
        return Problem(source, "bad_record", f'no "filename" (found: {keys})')
    folder = entry.get("filepath") or ""
    image_id = f"{folder}/{name}" if folder else name
    try:
        uri = under_root(root, image_id)
    except ValueError as error:
        return Problem(source, "path_escapes_root", f"{error}; set data.image_root to a folder that holds it")
    if image_id in seen:
        return Problem(source, "repeated_id", f"{image_id} already came; only its first entry is used")
    seen.add(image_id)
    sentences = entry.get("sentences")
    raw = [s.get("raw") for s in sentences if isinstance(s, dict)] if isinstance(sentences, list) else []
    captions = clean_captions(raw)
    if not captions:
        return Problem(source, "no_caption", f"{image_id} has no non-empty sentence")
    if not listing.has(uri):
        return Problem(source, "missing_image", f"no file {uri}")
    return Record(image_id, ImageRef(uri), captions, canonical_split(entry.get("split")), None, source)


READER = Reader(name="karpathy", suffixes=(".json",), detect=detect, read=read)
