"""Lists of picture names, one file a split, as Flickr8k has them: Flickr_8k.trainImages.txt."""

from __future__ import annotations

import re
from collections.abc import Collection

from repair_ray.data.files import FolderListing, open_text, read_head
from repair_ray.data.records import DataError, canonical_split

_SPLIT_WORD = re.compile(r"(?:^|[._-])(train|dev|val|validation|test)(?:_?images?)?(?:[._-]|$)", re.IGNORECASE)
_NAME = re.compile(r"[^\t]+\.[A-Za-z]{3,4}|\d+")


def split_lists(listing: FolderListing, files: list[str], names: Collection[str]) -> dict[str, str]:
    """The split of each of `names` that a list beside one of `files` holds; {} where there is no list.

    A list is a .txt file whose name has a split's word and whose lines are names of pictures, with or without their
    suffix, at least one of them known. Raises DataError when two lists hold the same known picture for different
    splits.
    """
    by_stem: dict[str, str] = {}
    found: dict[str, tuple[str, str]] = {}
    for folder in dict.fromkeys(file.rpartition("/")[0] or "." for file in files):
        for file in listing.files(folder):
            word = _SPLIT_WORD.search(file.rpartition("/")[2])
            if word is None or not file.lower().endswith(".txt") or file in files or not _is_list(read_head(file)):
                continue
            split = canonical_split(word[1]) or word[1]
            by_stem = by_stem or {name.rpartition(".")[0]: name for name in names}
            for line in _lines(file):
                name = line if line in names else by_stem.get(line, "")
                if not name:
                    continue
                other, where = found.setdefault(name, (split, file))
                if other != split:
                    raise DataError(f"{name} is in {where} ({other}) and in {file} ({split}); move the wrong list away")
    return {name: split for name, (split, _) in found.items()}


def _is_list(head: bytes) -> bool:
    lines = [line.strip() for line in head.decode("utf-8-sig", "replace").split("\n")[:50]]
    return any(lines) and all(_NAME.fullmatch(line) for line in lines[:-1] if line)


def _lines(file: str) -> list[str]:
    with open_text(file) as text:
        return [line.strip() for line in text if line.strip()]
