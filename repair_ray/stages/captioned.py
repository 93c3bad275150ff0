"""What the stages of negatives read: each usable picture with its captions, and what else is true of its group."""

from __future__ import annotations

from collections import defaultdict

import pyarrow as pa
import pyarrow.compute as pc

from repair_ray import tables
from repair_ray.run import CAPTIONS, IMAGES, Run
from repair_ray.stages.rows import Row


def captioned(run: Run, splits: tuple[str, ...]) -> pa.Table:
    """One `CAPTIONED` row a usable picture of `splits` that has a caption."""
    images = _usable(run.read(IMAGES), splits)
    captions: dict[str, list[Row]] = defaultdict(list)
    for row in sorted(_usable(run.read(CAPTIONS), splits), key=lambda row: (row["image_id"], row["position"])):
        captions[row["image_id"]].append(row)
    group: dict[str, list[str]] = defaultdict(list)
    for row in images:
        group[row["group_id"]].append(row["image_id"])
    rows = [
        {
            **row,
            "query_id": row["image_id"],
            "captions": [{"caption_id": c["caption_id"], "text": c["text"]} for c in captions[row["image_id"]]],
            "group_captions": [
                caption["text"]
                for other in group[row["group_id"]]
                if other != row["image_id"]
                for caption in captions[other]
            ],
        }
        for row in images
        if captions[row["image_id"]]
    ]
    return tables.to_table(rows, tables.CAPTIONED)


def _usable(table: pa.Table, splits: tuple[str, ...]) -> list[Row]:
    wanted = pc.and_(pc.equal(table["status"], tables.OK), pc.is_in(table["split"], pa.array(splits)))
    return list(table.filter(wanted).to_pylist())
