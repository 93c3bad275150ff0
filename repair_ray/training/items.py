"""What a training run trains on, as files: where each picture lies, each text, and how they belong together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from repair_ray.training.pairs import CorrectedPair, PairSet

Reference = tuple[str, int | None, int | None]


@dataclass(frozen=True)
class TrainingItems:
    """The item lists that a `PairSet` indexes: where each picture lies, and each text."""

    images: Sequence[Reference]
    texts: Sequence[str]


def write_items(path: str, items: TrainingItems, pairs: PairSet) -> None:
    """Keep a training set beside its run, so that workers on any node read the same one. Three Parquet files."""
    images = {
        "uri": [ref[0] for ref in items.images],
        "offset": pa.array([ref[1] for ref in items.images], pa.int64()),
        "length": pa.array([ref[2] for ref in items.images], pa.int64()),
        "group": pairs.image_group,
    }
    texts = {
        "text": list(items.texts),
        "image": pairs.caption_image,
        "group": pairs.caption_group,
        "key": pairs.caption_text,
        "anchor": np.isin(np.arange(len(items.texts)), pairs.anchors),
    }
    corrected = {
        "direction": pa.array([pair.direction for pair in pairs.corrected], pa.string()),
        **{
            name: pa.array([getattr(pair, name) for pair in pairs.corrected], pa.int64())
            for name in ("anchor", "image", "caption")
        },
        "fallback": pa.array([pair.fallback for pair in pairs.corrected], pa.bool_()),
    }
    for name, columns in (("images", images), ("texts", texts), ("corrected", corrected)):
        pq.write_table(pa.table(columns), f"{path}/{name}.parquet")


def read_items(path: str) -> tuple[TrainingItems, PairSet]:
    """Read what `write_items` wrote."""
    images, texts, corrected = (pq.read_table(f"{path}/{name}.parquet") for name in ("images", "texts", "corrected"))
    references = list(zip(*(images[name].to_pylist() for name in ("uri", "offset", "length")), strict=True))
    pairs = PairSet(
        image_group=images["group"].to_numpy(),
        caption_image=texts["image"].to_numpy(),
        caption_group=texts["group"].to_numpy(),
        caption_text=texts["key"].to_numpy(),
        anchors=np.flatnonzero(texts["anchor"].to_numpy()),
        corrected=[CorrectedPair(**row) for row in corrected.to_pylist()],
    )
    return TrainingItems(references, texts["text"].to_pylist()), pairs
