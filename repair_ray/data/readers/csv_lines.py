"""Rows of text separated by tab, comma, pipe or semicolon, quoted or not; a fault in one row stays in that row."""

from __future__ import annotations

import csv
import re
from collections import deque
from collections.abc import Iterable, Iterator

SEPARATORS = {"\t": "tab", ",": "comma", "|": "pipe", ";": "semicolon"}

# A picture's name, a comma, and a caption that holds commas without being quoted: no CSV writer makes such a line.
_BARE = re.compile(r"[^\",]+\.(?:jpe?g|png|gif|bmp|webp|tiff?),[^\"\r\n][^\r\n]*,", re.IGNORECASE)
_NAME_COMMA_TEXT = re.compile(r"(.+?\.(?:jpe?g|png|gif|bmp|webp|tiff?)),(.*)", re.IGNORECASE | re.DOTALL)


def header(line: str, separator: str) -> list[str]:
    """The names of the columns, without the spaces around them."""
    return [name.strip() for name in next(csv.reader([line.rstrip("\r\n")], delimiter=separator), [])]


def quoted_rows(lines: Iterable[str], separator: str) -> Iterator[list[str]]:
    """Rows as CSV writers quote them, with line ends and doubled quotes in quoted fields. Blank lines give [].

    A line that is no CSV, such as `"Stop" says the sign<tab>x.jpg`, or a quote that is never closed, is split as it
    stands, and reading goes on at the next line: one stray quote does not swallow rows.
    """
    source = _Lines(lines)
    reader = csv.reader(source, delimiter=separator, strict=True)
    while True:
        source.taken.clear()
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error:
            first, *rest = source.taken
            source.give_back(rest)
            reader = csv.reader(source, delimiter=separator, strict=True)
            row = first.rstrip("\r\n").split(separator)
        yield row


def bare_rows(lines: Iterable[str]) -> Iterator[list[str]]:
    """[name, caption] of lines `name.jpg,caption` without any quoting; a line of another form is one field."""
    for line in lines:
        text = line.strip()
        parts = _NAME_COMMA_TEXT.fullmatch(text)
        yield [parts[1], parts[2]] if parts else [text] if text else []


def is_bare(lines: Iterable[str]) -> bool:
    """Whether captions stand unquoted after `name.jpg,`, as in CLIP_benchmark's flickr30k_test_karpathy.txt."""
    return any(_BARE.match(line) for line in lines)


class _Lines:
    """An iterator over lines that remembers those of the present row, and takes lines back."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._lines = iter(lines)
        self._waiting: deque[str] = deque()
        self.taken: list[str] = []

    def __iter__(self) -> _Lines:
        return self

    def __next__(self) -> str:
        line = self._waiting.popleft() if self._waiting else next(self._lines)
        self.taken.append(line)
        return line

    def give_back(self, lines: list[str]) -> None:
        self._waiting.extendleft(reversed(lines))
