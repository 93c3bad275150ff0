"""From tables to a training set: anchors of the training splits, and corrected pairs from an `edits` table."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from repair_ray import tables
from repair_ray.data.text import text_key
from repair_ray.run import CAPTIONS, IMAGES, Run, RunError
from repair_ray.training.items import Reference, TrainingItems
from repair_ray.training.pairs import ABSENT, CorrectedPair, PairSet


class _Builder:
    """Grows the two item lists, with integer codes for groups and texts."""

    def __init__(self) -> None:
        self.images: list[Reference] = []
        self.texts: list[str] = []
        self.image_group: list[int] = []
        self.caption_image: list[int] = []
        self.caption_group: list[int] = []
        self.caption_text: list[int] = []
        self._groups: dict[str, int] = {}
        self._keys: dict[str, int] = {}
        self.image_of: dict[str, int] = {}
        self.caption_of: dict[str, int] = {}

    def image(self, row: dict[str, Any], group: int | None = None) -> int:
        self.images.append((row["uri"], row["offset"], row["length"]))
        self.image_group.append(self._group(row["group_id"]) if group is None else group)
        return len(self.images) - 1

    def caption(self, text: str, key: str, image: int, group: int) -> int:
        self.texts.append(text)
        self.caption_image.append(image)
        self.caption_group.append(group)
        self.caption_text.append(self._keys.setdefault(key, len(self._keys)))
        return len(self.texts) - 1

    def _group(self, name: str) -> int:
        return self._groups.setdefault(name, len(self._groups))

    def finish(self, anchors: int, corrected: list[CorrectedPair]) -> tuple[TrainingItems, PairSet]:
        columns = (self.image_group, self.caption_image, self.caption_group, self.caption_text)
        image_group, caption_image, caption_group, caption_text = (np.array(column, np.int64) for column in columns)
        pairs = PairSet(image_group, caption_image, caption_group, caption_text, np.arange(anchors), corrected)
        return TrainingItems(self.images, self.texts), pairs


def training_set(
    run: Run,
    splits: tuple[str, ...],
    edits: str | None = None,
    *,
    paired_fallback: bool = True,
    leave_out: frozenset[str] = frozenset(),
) -> tuple[TrainingItems, PairSet]:
    """Anchors of `splits`, with the corrected pairs of an `edits` product (methods, section 1, step 5).

    Args:
        paired_fallback: failures without an accepted edit bring the query's own counterpart, for anchors that have no
            repair in that direction; without it those rows and columns of a grid are masked.
        leave_out: images to leave out, for cross-fitting.

    Raises:
        RunError: no usable pair in `splits`.
    """
    builder = _Builder()
    for row in _usable(run.read(IMAGES), splits, "image_id"):
        if row["image_id"] not in leave_out:
            builder.image_of[row["image_id"]] = builder.image(row)
    for row in _usable(run.read(CAPTIONS), splits, "caption_id"):
        if row["image_id"] in builder.image_of:
            image = builder.image_of[row["image_id"]]
            place = builder.caption(row["text"], row["text_key"], image, builder.image_group[image])
            builder.caption_of[row["caption_id"]] = place
    anchors = len(builder.texts)
    if not anchors:
        raise RunError(f"no usable pair in {' and '.join(splits)}: nothing to train on")
    corrected = [] if edits is None else _corrected(builder, run.read(edits), paired_fallback)
    return builder.finish(anchors, corrected)


def _usable(table: pa.Table, splits: tuple[str, ...], identity: str) -> list[dict[str, Any]]:
    wanted = pc.and_(pc.equal(table["status"], tables.OK), pc.is_in(table["split"], pa.array(splits)))
    return sorted(table.filter(wanted).to_pylist(), key=lambda row: row[identity])


def _corrected(builder: _Builder, edits: pa.Table, paired_fallback: bool) -> list[CorrectedPair]:
    pairs = []
    for row in edits.to_pylist():
        accepted = row["status"] == tables.OK
        if not accepted and (not paired_fallback or row["status"] == tables.ERROR):
            continue
        edited = accepted and row["kind"] != tables.PAIRED
        make = _caption_pair if row["direction"] == "i2t" else _image_pair
        pairs.append(make(builder, row, edited, fallback=not accepted))
    return pairs


def _caption_pair(builder: _Builder, row: dict[str, Any], edited: bool, fallback: bool) -> CorrectedPair:
    image = builder.image_of[row["query_id"]]
    if edited:
        caption = builder.caption(row["text"], text_key(row["text"]), ABSENT, builder.image_group[image])
    else:
        caption = builder.caption_of[row["ground_truth_id"]]
    return CorrectedPair("i2t", builder.caption_of[row["candidate_id"]], image, caption, fallback)


def _image_pair(builder: _Builder, row: dict[str, Any], edited: bool, fallback: bool) -> CorrectedPair:
    caption = builder.caption_of[row["query_id"]]
    if edited:
        # The picture was made for this caption. It joins the caption's group: what else holds of that group may hold
        # of it too, and is better masked than pushed away.
        image = builder.image(row, group=builder.caption_group[caption])
    else:
        image = builder.image_of[row["ground_truth_id"]]
    return CorrectedPair("t2i", builder.image_of[row["candidate_id"]], image, caption, fallback)
