"""From tables to a training set: anchors of the training splits, and what `edits` tables add to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from repair_ray import tables
from repair_ray.data.text import text_key
from repair_ray.run import CAPTIONS, IMAGES, Run, RunError
from repair_ray.synthesis.teacher import teacher_features
from repair_ray.training.items import Reference, TrainingItems
from repair_ray.training.pairs import ABSENT, Contrast, CorrectedPair, PairSet


class _Builder:
    """Grows the two item lists, with integer codes for groups and texts."""

    def __init__(self) -> None:
        self.images: list[Reference] = []
        self.texts: list[str] = []
        self.image_group: list[int] = []
        self.caption_image: list[int] = []
        self.caption_group: list[int] = []
        self.caption_text: list[int] = []
        self.anchors: list[int] = []
        self._groups: dict[str, int] = {}
        self._keys: dict[str, int] = {}
        self.image_of: dict[str, int] = {}
        self.caption_of: dict[str, int] = {}

    def image(self, row: dict[str, Any], group: int | None = None) -> int:
        self.images.append((row["uri"], row["offset"], row["length"]))
        self.image_group.append(self.group(row["group_id"]) if group is None else group)
        return len(self.images) - 1

    def caption(self, text: str, key: str, image: int, group: int) -> int:
        self.texts.append(text)
        self.caption_image.append(image)
        self.caption_group.append(group)
        self.caption_text.append(self._keys.setdefault(key, len(self._keys)))
        return len(self.texts) - 1

    def anchor(self, text: str, key: str, image: int) -> int:
        place = self.caption(text, key, image, self.image_group[image])
        self.anchors.append(place)
        return place

    def group(self, name: str) -> int:
        return self._groups.setdefault(name, len(self._groups))

    def finish(self, corrected: list[CorrectedPair], contrasts: list[Contrast]) -> tuple[TrainingItems, PairSet]:
        pairs = PairSet(
            image_group=np.array(self.image_group, np.int64),
            caption_image=np.array(self.caption_image, np.int64),
            caption_group=np.array(self.caption_group, np.int64),
            caption_text=np.array(self.caption_text, np.int64),
            anchors=np.array(self.anchors, np.int64),
            corrected=corrected,
            contrasts=contrasts,
        )
        return TrainingItems(self.images, self.texts), pairs


def training_set(
    run: Run,
    splits: tuple[str, ...],
    edits: Sequence[str] = (),
    *,
    paired_fallback: bool = True,
    leave_out: frozenset[str] = frozenset(),
    teacher: str | None = None,
) -> tuple[TrainingItems, PairSet]:
    """Anchors of `splits`, with what `edits` products add: corrected pairs (methods, section 1, step 5), negative
    captions (section 3) and paraphrases.

    Args:
        edits: `edits`, `reviewed` and `repairs` products; repairs of weight 0 are left out.
        paired_fallback: failures without an accepted edit bring the query's own counterpart, for anchors that have no
            repair in that direction; without it those rows and columns of a grid are masked.
        leave_out: images to leave out, for cross-fitting.
        teacher: the embeddings that the teacher's features are read from.

    Raises:
        RunError: no usable pair in `splits`, or a teacher that has not seen all of them.
    """
    builder = _Builder()
    for row in _usable(run.read(IMAGES), splits, "image_id"):
        if row["image_id"] not in leave_out:
            builder.image_of[row["image_id"]] = builder.image(row)
    for row in _usable(run.read(CAPTIONS), splits, "caption_id"):
        if row["image_id"] in builder.image_of:
            image = builder.image_of[row["image_id"]]
            builder.caption_of[row["caption_id"]] = builder.anchor(row["text"], row["text_key"], image)
    if not builder.anchors:
        raise RunError(f"no usable pair in {' and '.join(splits)}: nothing to train on")
    rows = [row for product in edits for row in run.read(product).to_pylist() if row.get("weight") != 0]
    items, pairs = builder.finish(_corrected(builder, rows, paired_fallback), _contrasts(builder, rows))
    if teacher is None:
        return items, pairs
    known = (builder.image_of, builder.caption_of)
    features = teacher_features(run, teacher, *known, images=len(items.images), captions=len(items.texts))
    return replace(items, teacher=features), pairs


def _usable(table: pa.Table, splits: tuple[str, ...], identity: str) -> list[dict[str, Any]]:
    wanted = pc.and_(pc.equal(table["status"], tables.OK), pc.is_in(table["split"], pa.array(splits)))
    return sorted(table.filter(wanted).to_pylist(), key=lambda row: row[identity])


def _corrected(builder: _Builder, rows: list[dict[str, Any]], paired_fallback: bool) -> list[CorrectedPair]:
    pairs = []
    for row in rows:
        if row["kind"] in (tables.NEGATIVE, tables.PARAPHRASE):
            continue
        accepted = row["status"] == tables.OK
        if not accepted and (not paired_fallback or row["status"] in (tables.ERROR, tables.REFUSED)):
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
    anchor = builder.caption_of[row["candidate_id"]]
    return CorrectedPair("i2t", anchor, image, caption, fallback, row.get("weight", 1.0))


def _image_pair(builder: _Builder, row: dict[str, Any], edited: bool, fallback: bool) -> CorrectedPair:
    caption = builder.caption_of[row["query_id"]]
    if edited:
        # The picture was made for this caption. It joins the caption's group: what else holds of that group may hold
        # of it too, and is better masked than pushed away.
        image = builder.image(row, group=builder.caption_group[caption])
    else:
        image = builder.image_of[row["ground_truth_id"]]
    anchor = builder.image_of[row["candidate_id"]]
    return CorrectedPair("t2i", anchor, image, caption, fallback, row.get("weight", 1.0))


def _contrasts(builder: _Builder, rows: list[dict[str, Any]]) -> list[Contrast]:
    """Negative captions, each in a group of its own; and the anchors that paraphrases are."""
    found = []
    for row in rows:
        if row["status"] != tables.OK or row["kind"] not in (tables.NEGATIVE, tables.PARAPHRASE):
            continue
        if row["kind"] == tables.PARAPHRASE:
            builder.anchor(row["text"], text_key(row["text"]), builder.image_of[row["ground_truth_id"]])
        elif row["direction"] == "i2t":
            anchor = builder.caption_of[row["ground_truth_id"]]
            negative = builder.caption(row["text"], text_key(row["text"]), ABSENT, _own_group(builder, row))
            found.append(Contrast(anchor, builder.image_of[row["query_id"]], anchor, negative))
        else:
            # A picture of the negative caption: a pair for which the anchor is the negative (TripletCLIP).
            anchor, group = builder.caption_of[row["query_id"]], _own_group(builder, row)
            image = builder.image(row, group=group)
            caption = builder.caption(row["text"], text_key(row["text"]), ABSENT, group)
            found.append(Contrast(anchor, image, caption, anchor))
    return found


def _own_group(builder: _Builder, row: dict[str, Any]) -> int:
    """The group of a negative caption and of its picture: both share the text."""
    return builder.group(f"negative {text_key(row['text'])}")
