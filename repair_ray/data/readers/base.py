"""What a format is: a name, a test on content, and a generator of records. One small file each."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from repair_ray.data.records import DataError, Item, canonical_split

# "train2017" is COCO's train.
_NAMED_SPLIT = re.compile(
    r"(?:^|[/_-])(train|training|val|valid|validation|dev|test)(?:20\d\d)?(?:[-_./]|$)", re.IGNORECASE
)


@dataclass(frozen=True)
class ReadOptions:
    """The settings a reader may need; each error names them as `data.<field>`.

    `split_column=""` ignores a split column that is there. `image_root` None means the folder of the data file, or,
    for text and JSON, a folder near it that holds the pictures (roots.py).
    """

    image_root: str | None = None
    image_column: str | None = None
    caption_column: str | None = None
    group_column: str | None = None
    split_column: str | None = None
    id_column: str | None = None
    batch_rows: int = 256


@dataclass(frozen=True)
class Reader:
    """`suffixes` pick a folder's files; `detect` sees the first bytes of the first; `read` yields the records of all.

    `read(path, files, options)`: `path` as the user wrote it, `files` what it expands to. A record's split is
    what its row or file says (None if nothing); `read` in the registry filters and names the rest. A layout that only
    the names of files tell is a `layout`: no file of another name is read for it. Where each file is a row
    (`one_file_a_row`), its folders may name a split but not its own name.
    """

    name: str
    suffixes: tuple[str, ...]
    detect: Callable[[bytes], bool]
    read: Callable[[str, list[str], ReadOptions], Iterator[Item]]
    chooses: Callable[[list[str]], list[str]] | None = None
    layout: bool = False
    one_file_a_row: bool = False

    def choose(self, files: list[str]) -> list[str]:
        """Those of a data set's files that this reader would read, in order; none where they are not its kind."""
        if self.chooses is not None:
            return self.chooses(files)
        return [file for file in files if file.lower().endswith(self.suffixes)]


def split_by_name(source: str, path: str) -> str | None:
    """The split that the names of a file and its folders below `path` tell, as in validation-00000-of-00002.parquet."""
    folder = path.rstrip("/") + "/"
    name = source[len(folder) :] if source.startswith(folder) else source.rpartition("/")[2]
    found = _NAMED_SPLIT.findall(name)
    return canonical_split(found[-1]) if found else None


def refuse_columns(options: ReadOptions, path: str, layout: str) -> None:
    """Raises DataError where a setting names a column, and the layout has none."""
    for name in ("image_column", "caption_column", "group_column", "split_column", "id_column"):
        if getattr(options, name):
            raise DataError(f"data.{name} names a column of a table; {path} is {layout}, which has none: unset it")
