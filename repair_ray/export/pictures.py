"""Encoded pictures of a run, copied as they are."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from repair_ray import tables
from repair_ray.config import DataConfig
from repair_ray.data.access import image_store
from repair_ray.data.images import ImageProblem
from repair_ray.data.shards import image_extension
from repair_ray.export.pairs import Picture
from repair_ray.run import Run, RunError

FOLDER = "images"
_PLAIN = re.compile(r"[A-Za-z0-9_-]{1,64}")

# A picture's encoded bytes and its file name, `<image id>.<extension by content>`.
Read = Callable[[Picture], tuple[bytes, str]]


def reader(run: Run, data: DataConfig) -> Read:
    """Reads the pictures of a run; raises `RunError` for one that cannot be read, since a pair needs both of its."""
    store = image_store(run.folder, data)

    def read(picture: Picture) -> tuple[bytes, str]:
        try:
            content = store.bytes(picture.uri, picture.offset, picture.length, picture.sha256)
        except ImageProblem as problem:
            raise RunError(f"picture {picture.image_id} cannot be exported: {problem}") from None
        stem = picture.image_id if _PLAIN.fullmatch(picture.image_id) else tables.row_id(picture.image_id)
        return content, f"{stem}.{image_extension(content)}"

    return read


class PictureFolder:
    """Writes pictures into `<folder>/images`, each once."""

    def __init__(self, folder: Path, read: Read) -> None:
        self._folder, self._read = folder, read
        self._written: dict[str, str] = {}
        (folder / FOLDER).mkdir()

    def path(self, picture: Picture) -> str:
        """Write the picture where it is not there yet; its path as seen from the folder."""
        if picture.image_id not in self._written:
            content, name = self._read(picture)
            (self._folder / FOLDER / name).write_bytes(content)
            self._written[picture.image_id] = f"{FOLDER}/{name}"
        return self._written[picture.image_id]

    def __len__(self) -> int:
        return len(self._written)
