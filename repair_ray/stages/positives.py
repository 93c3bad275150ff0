"""Who belongs to whom in one split of a run, by id and by place."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from repair_ray import tables
from repair_ray.evaluation.positives import Answers, known_answers, known_positives
from repair_ray.run import CAPTIONS, IMAGES, Run, RunError


@dataclass(frozen=True)
class Positives:
    """Who belongs to whom in one split, by group, by equal text and by equal pixels (which share a group).

    `of_image` and `of_caption` give the known positives on the other side, as ids. For a split that fits a process as
    Python objects; see `answers`.
    """

    of_image: dict[str, frozenset[str]]
    of_caption: dict[str, frozenset[str]]

    @classmethod
    def read(cls, run: Run, split: str) -> Positives:
        """From the finished `images` and `captions` tables."""
        images, captions = (_usable(run, product, split).to_pylist() for product in (IMAGES, CAPTIONS))
        return cls(
            *known_positives(
                [(row["image_id"], row["group_id"]) for row in images],
                [(row["caption_id"], row["group_id"], row["text_key"]) for row in captions],
            )
        )

    def of(self, direction: str, query: str) -> frozenset[str]:
        """Positives of a query: captions of an image (`i2t`), images of a caption (`t2i`)."""
        return (self.of_image if direction == "i2t" else self.of_caption)[query]


def answers(run: Run, split: str, images: pa.Array, captions: pa.Array) -> dict[str, Answers]:
    """The same by place: `i2t` and `t2i` of the embedded images and captions, which are given by their ids.

    Raises:
        RunError: an embedded item is not known.
    """
    known_images, known_captions = (_usable(run, product, split) for product in (IMAGES, CAPTIONS))
    groups = pa.chunked_array([*known_images["group_id"].chunks, *known_captions["group_id"].chunks], pa.string())
    numbers = _numbers(groups)
    i2t, t2i = known_answers(
        numbers[: len(known_images)],
        numbers[len(known_images) :],
        _numbers(known_captions["text_key"]),
        _places(images, known_images["image_id"]),
        _places(captions, known_captions["caption_id"]),
    )
    return {"i2t": i2t, "t2i": t2i}


def _usable(run: Run, product: str, split: str) -> pa.Table:
    columns = ["image_id", "group_id"] if product == IMAGES else ["caption_id", "group_id", "text_key"]
    return run.read(product, columns, (pc.field("split") == split) & (pc.field("status") == tables.OK))


def _numbers(values: pa.ChunkedArray) -> np.ndarray:
    """Equal values as equal numbers, from 0."""
    return pc.index_in(values, values.unique()).to_numpy().astype(np.int64)


def _places(ids: pa.Array, known: pa.ChunkedArray) -> np.ndarray:
    places = pc.index_in(ids, known.combine_chunks())
    if places.null_count:
        first = ids[pc.index(pc.is_null(places), True).as_py()]
        raise RunError(f"{first} was embedded, and is no usable item of its split: use --redo embeddings")
    return places.to_numpy().astype(np.int64)
