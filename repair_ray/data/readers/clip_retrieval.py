"""What clip-retrieval leaves: img_emb/, text_emb/, and metadata/metadata_0.parquet with paths and captions."""

from __future__ import annotations

import re
from collections.abc import Iterator

from repair_ray.data.readers import parquet
from repair_ray.data.readers.base import Reader, ReadOptions
from repair_ray.data.records import DataError, Item

_METADATA = re.compile(r"^(?P<root>.*/)metadata/metadata_(?P<number>\d+)\.parquet$")
_EMBEDDINGS = re.compile(r"^(?P<root>.*/)(?:img|text)_emb/[^/]*_emb_\d+\.npy$")


def choose(files: list[str]) -> list[str]:
    """The metadata files that have embeddings beside their folder, by number."""
    roots = {found["root"] for file in files if (found := _EMBEDDINGS.match(file))}
    metadata = [found for file in files if (found := _METADATA.match(file)) and found["root"] in roots]
    return [found[0] for found in sorted(metadata, key=lambda found: (found["root"], int(found["number"])))]


def read(path: str, files: list[str], options: ReadOptions) -> Iterator[Item]:
    """Records of the metadata's rows; the embeddings are of another model and are not read.

    Raises DataError without data.image_root: the pictures are never below this folder.
    """
    if options.image_root is None:
        raise DataError(
            f"{path} is an output of clip-retrieval, which holds no pictures: set data.image_root to their folder"
        )
    return parquet.read(path, files, options)


READER = Reader(
    name="clip_retrieval",
    suffixes=("metadata_0.parquet",),
    detect=parquet.detect,
    read=read,
    chooses=choose,
    layout=True,
)
