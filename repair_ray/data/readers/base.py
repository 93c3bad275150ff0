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
    """`suffix` picks a folder's files; `detect` sees the first bytes of a file; `read` yields its records.

    `read(path, files, options)`: `path` as the user wrote it, `files` what it expands to. A record's split is
    what its row or file says (None if nothing); `read` in the registry filters and names the rest.
    """

    name: str
    suffix: str
    detect: Callable[[bytes], bool]
    read: Callable[[str, list[str], ReadOptions], Iterator[Item]]
