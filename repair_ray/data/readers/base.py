"""What a format is: a name, a test on content, and a generator of records. One small file each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from repair_ray.data.records import Item


@dataclass(frozen=True)
class ReadOptions:
    """The settings a reader may need; each error names them as `data.<field>`.

    `split_column=""` ignores a split column that is there. `image_root` None means the folder of the data file.
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
    the names of many files tell has a `choose` of its own.
    """

    name: str
    suffixes: tuple[str, ...]
    detect: Callable[[bytes], bool]
    read: Callable[[str, list[str], ReadOptions], Iterator[Item]]
    chooses: Callable[[list[str]], list[str]] | None = None

    def choose(self, files: list[str]) -> list[str]:
        """Those of a data set's files that this reader would read, in order; none where they are not its kind."""
        if self.chooses is not None:
            return self.chooses(files)
        return [file for file in files if file.lower().endswith(self.suffixes)]
