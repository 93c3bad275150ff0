"""What a training run trains on, as files: where each picture lies, each text, and how they belong together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from repair_ray.training.pairs import Contrast, CorrectedPair, PairSet

Reference = tuple[str, int | None, int | None]


@dataclass(frozen=True)
class TeacherFeatures:
    """A frozen teacher's unit features of the items, float32 `[I, E]` and `[C, E]`; NaN for items it has not seen.

    None for a kind that the teacher cannot see.
    """

    images: np.ndarray | None
    texts: np.ndarray | None


@dataclass(frozen=True)
class TrainingItems:
    """The item lists that a `PairSet` indexes: where each picture lies, and each text, what a teacher makes of it."""

    images: Sequence[Reference]
    texts: Sequence[str]
    teacher: TeacherFeatures | None = None


def write_items(path: str, items: TrainingItems, pairs: PairSet) -> None:
    """Keep a training set beside its run, so that workers on any node read the same one.

    Four Parquet files, and the teacher's features as arrays.
    """
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
        "weight": pa.array([pair.weight for pair in pairs.corrected], pa.float64()),
    }
    contrasts = {
        name: pa.array([getattr(contrast, name) for contrast in pairs.contrasts], pa.int64())
        for name in ("anchor", "image", "caption", "negative")
    }
    files = (("images", images), ("texts", texts), ("corrected", corrected), ("contrasts", contrasts))
    for name, columns in files:
        pq.write_table(pa.table(columns), f"{path}/{name}.parquet")
    for kind in ("images", "texts"):
        file = Path(path) / f"teacher_{kind}.npy"
        features = getattr(items.teacher, kind, None)
        file.unlink(missing_ok=True)  # of a set that was left half-made
        if features is not None:
            np.save(file, features)


def read_items(path: str) -> tuple[TrainingItems, PairSet]:
    """Read what `write_items` wrote."""
    images, texts, corrected, contrasts = (
        pq.read_table(f"{path}/{name}.parquet") for name in ("images", "texts", "corrected", "contrasts")
    )
    references = list(zip(*(images[name].to_pylist() for name in ("uri", "offset", "length")), strict=True))
    pairs = PairSet(
        image_group=images["group"].to_numpy(),
        caption_image=texts["image"].to_numpy(),
        caption_group=texts["group"].to_numpy(),
        caption_text=texts["key"].to_numpy(),
        anchors=np.flatnonzero(texts["anchor"].to_numpy()),
        corrected=[CorrectedPair(**row) for row in corrected.to_pylist()],
        contrasts=[Contrast(**row) for row in contrasts.to_pylist()],
    )
    return TrainingItems(references, texts["text"].to_pylist(), _read_teacher(Path(path))), pairs


def _read_teacher(folder: Path) -> TeacherFeatures | None:
    files = [folder / f"teacher_{kind}.npy" for kind in ("images", "texts")]
    if not any(file.exists() for file in files):
        return None
    return TeacherFeatures(
        *(np.load(file, mmap_mode="r", allow_pickle=False) if file.exists() else None for file in files)
    )
