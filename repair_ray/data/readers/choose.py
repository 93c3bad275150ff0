"""Which files of a folder belong to a layout, told by content; many text and JSON layouts share their suffixes."""

from __future__ import annotations

import re
from collections.abc import Callable

# A folder may hold a small file for every picture; what describes a whole data set lies near its top.
LOOKED_AT = 64

_SPLIT_WORD = re.compile(r"(?<![a-z])(training|train|validation|valid|val|dev|test)(?![a-z])", re.IGNORECASE)
_SHARD_NUMBER = re.compile(r"(?<![A-Za-z0-9])\d+(?![A-Za-z0-9])")


def by_content(suffixes: tuple[str, ...], fits: Callable[[str], bool]) -> Callable[[list[str]], list[str]]:
    """A chooser for `Reader.chooses`: the first file that fits, and those whose names make them parts of the same set.

    Files near the top come first, then by name. Parts differ in the split's word or in a number that stands alone:
    train.csv and val.csv, captions_train2017.json and captions_val2017.json, part-0000.jsonl and part-0001.jsonl.
    Others are left alone: two files of one layout are as often two versions of one data set.

    Args:
        fits: told the path of a file; at most LOOKED_AT are looked at.
    """

    def choose(files: list[str]) -> list[str]:
        candidates = [file for file in files if file.lower().endswith(suffixes)]
        candidates.sort(key=lambda file: (file.count("/"), file))
        for first in candidates[:LOOKED_AT]:
            if fits(first):
                return sorted(file for file in candidates if _set_of(file) == _set_of(first))
        return []

    return choose


def _set_of(file: str) -> str:
    folder, _, name = _SPLIT_WORD.sub("*", file).rpartition("/")
    return f"{folder}/{_SHARD_NUMBER.sub('#', name)}"
