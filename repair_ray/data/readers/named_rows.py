"""One record a picture, where rows name pictures by their files, in whatever order the rows come.

What is held is text: names and captions, never a picture.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from repair_ray.data.readers.base import ReadOptions, split_by_name
from repair_ray.data.readers.roots import Pictures, picture_id
from repair_ray.data.readers.split_lists import split_lists
from repair_ray.data.records import Item, Problem, Record


@dataclass(frozen=True, slots=True)
class NamedRow:
    """A row of a text file: the picture's name and some captions of it.

    `number` is the caption's place among those of its picture, where the source numbers them. `key` is an id that
    the user asked for in the picture's name's stead. `row` counts from 0.
    """

    name: str
    captions: list[str]
    file: str
    row: int
    split: str | None = None
    group: str | None = None
    number: int | None = None
    key: str | None = None

    @property
    def source(self) -> str:
        return f"{self.file}:{self.row}"


@dataclass(slots=True)
class _Picture:
    first: NamedRow
    captions: list[str]
    numbers: list[int] | None = None
    conflict: str = ""

    def in_order(self) -> list[str]:
        if self.numbers is None or len(self.numbers) != len(self.captions):
            return self.captions
        return [self.captions[i] for i in sorted(range(len(self.captions)), key=self.numbers.__getitem__)]


def join_rows(
    rows: Iterable[NamedRow | Problem], path: str, files: list[str], options: ReadOptions, use_lists: bool = False
) -> Iterator[Item]:
    """Problems as they come, then one record for each picture, in the order of their first rows.

    Captions stand as the source numbers them, else as they come. A row without a caption is the problem "no_caption".
    Rows of one picture that name different splits or groups, and rows of one asked-for id that name different
    pictures, make one problem, "ambiguous_id". Pictures' own problems are those of `Pictures.find`.

    Args:
        path: as the user wrote it; `files` what was chosen of it.
        use_lists: where no row names a split, look for lists of names beside the files (split_lists.py). A picture
            that none of them lists is then of the split "unlisted". `data.split_column=""` ignores such lists.
    """
    told = {file: split_by_name(file, path) if len(files) > 1 else None for file in files}
    pictures: dict[str, _Picture] = {}
    for row in rows:
        if isinstance(row, Problem):
            yield row
        elif not row.captions:
            yield Problem(row.source, "no_caption", f"no text for {row.name!r}")
        else:
            _add(pictures, row, told)
    found = Pictures(path, options.image_root)
    roots = _roots(found, pictures)
    lists: dict[str, str] = {}
    if use_lists and options.split_column is None and not any(picture.first.split for picture in pictures.values()):
        lists = split_lists(found.listing, list(roots), {picture_id(p.first.name) for p in pictures.values()})
    seen: set[str] = set()
    for picture in pictures.values():
        split = picture.first.split or told[picture.first.file]
        if lists:
            split = lists.get(picture_id(picture.first.name), "unlisted")
        yield _item(picture, split, roots[picture.first.file], found, seen)


def _add(pictures: dict[str, _Picture], row: NamedRow, told: dict[str, str | None]) -> None:
    key = row.key or picture_id(row.name)
    picture = pictures.get(key)
    if picture is None:
        picture = pictures[key] = _Picture(row, row.captions)
    else:
        first = picture.first
        if row.key and picture_id(first.name) != picture_id(row.name):
            picture.conflict = f"name different pictures (also at {row.source}); set another data.id_column"
        elif (first.split or told[first.file], first.group) != (row.split or told[row.file], row.group):
            picture.conflict = f"name different splits or groups (also at {row.source}); none of them is used"
        picture.captions.extend(row.captions)
    if row.number is not None:
        picture.numbers = [*(picture.numbers or ()), *[row.number] * len(row.captions)]


def _roots(found: Pictures, pictures: dict[str, _Picture]) -> dict[str, str]:
    names: dict[str, list[str]] = {}
    for picture in pictures.values():
        names.setdefault(picture.first.file, []).append(picture.first.name)
    return {file: found.root(file, own) for file, own in names.items()}


def _item(picture: _Picture, split: str | None, root: str, found: Pictures, seen: set[str]) -> Item:
    first = picture.first
    if picture.conflict:
        return Problem(first.source, "ambiguous_id", f"rows of {first.key or first.name!r} {picture.conflict}")
    place = found.find(root, first.name, first.source)
    if isinstance(place, Problem):
        return place
    image_id = first.key or place[0]
    if image_id in seen:
        return Problem(first.source, "repeated_id", f"{image_id} already came under another name")
    seen.add(image_id)
    return Record(image_id, place[1], picture.in_order(), split, first.group, first.source)
