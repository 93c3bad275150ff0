"""The data as a config describes it: its rows, and the store that opens its pictures."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from repair_ray.config import DataConfig
from repair_ray.data.readers import read
from repair_ray.data.records import Item
from repair_ray.data.store import ImageStore


def read_data(data: DataConfig, path: str, split: str | None) -> Iterator[Item]:
    """`read` of one path, with the settings of a data section."""
    return read(
        path,
        data.format,
        image_root=data.image_root,
        image_column=data.image_column,
        caption_column=data.caption_column,
        group_column=data.group_column,
        split_column=data.split_column,
        id_column=data.id_column,
        split=split,
    )


def image_store(root: Path | str, data: DataConfig) -> ImageStore:
    """The store of pictures below `root` (a run's: its shards), and of files where the reader found them."""
    return ImageStore(
        str(root), background=data.background, max_pixels=data.max_pixels, max_bytes=data.max_image_mb * 2**20
    )
