"""Flickr8k's and Flickr30k's own caption files: Flickr8k.token.txt, results_20130124.token."""

from __future__ import annotations

import re
from collections.abc import Iterator

from repair_ray.data.files import open_text, read_head
from repair_ray.data.readers.base import Reader, ReadOptions, refuse_columns
from repair_ray.data.readers.choose import by_content
from repair_ray.data.readers.named_rows import NamedRow, join_rows
from repair_ray.data.records import Item, Problem, clean_captions

SUFFIXES = (".token", ".txt", ".tsv")

# A name may hold "#" itself: the last one before the first tab counts.
_LINE = re.compile(r"([^\t]+)#(\d+)[ ]*\t(.*)", re.DOTALL)


def detect(head: bytes) -> bool:
    """The first line is `name.jpg#0<tab>caption`."""
    first = head.removeprefix(b"\xef\xbb\xbf").lstrip().partition(b"\n")[0]
    return b"\0" not in head and _LINE.match(first.decode("utf-8", "replace")) is not None


def read(path: str, files: list[str], options: ReadOptions) -> Iterator[Item]:
    """Lines `name#number<tab>caption`; captions stand by their numbers, further tabs are white space.

    The split is that of the list that names the picture, where lists lie beside the file. Problems: bad_record (a line
    of another form), and those of `join_rows`: names such as image.jpg.1, of which there is no photo, and photos that
    are absent are missing_image.
    """
    refuse_columns(options, path, "a token file")
    rows = (row for file in files for row in _rows(file))
    yield from join_rows(rows, path, files, options, use_lists=True)


def _rows(file: str) -> Iterator[NamedRow | Problem]:
    with open_text(file) as text:
        for index, line in enumerate(text):
            parts = _LINE.match(line)
            if parts:
                yield NamedRow(parts[1].strip(), clean_captions(parts[3]), file, index, number=int(parts[2]))
            elif line.strip():
                detail = f"{line.strip()[:100]!r} is not name#number<tab>caption"
                yield Problem(f"{file}:{index}", "bad_record", detail)


def _fits(file: str) -> bool:
    # Flickr8k.lemma.token.txt holds the same captions as lemmas.
    return "lemma" not in file.rpartition("/")[2].lower() and detect(read_head(file))


READER = Reader(name="token", suffixes=SUFFIXES, detect=detect, read=read, chooses=by_content(SUFFIXES, _fits))
