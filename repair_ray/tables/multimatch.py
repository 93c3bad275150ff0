"""What a multi-match benchmark is made of: attribute statistics, queries, gallery, pairs, labels, decisions."""

from __future__ import annotations

import pyarrow as pa

from repair_ray.tables.base import STATUS, Table, required

ATTRIBUTES = Table(
    "attributes",
    pa.schema(
        [
            *required("attribute_id", "kind", "text"),
            pa.field("images", pa.int64(), nullable=False),
            pa.field("share", pa.float32(), nullable=False),
            *STATUS,
        ]
    ),
    "attribute_id",
    ("kind", "attribute_id"),
)

ASKED = Table(
    "asked",
    pa.schema(
        [
            *required("query_id", "text", "text_key", "source"),
            pa.field("combination", pa.string()),
            pa.field("captions", pa.list_(pa.string())),
            pa.field("expected", pa.float32()),
            pa.field("held_out", pa.bool_()),
            *STATUS,
        ]
    ),
    "query_id",
    ("query_id",),
)

GALLERY = Table(
    "gallery",
    pa.schema(
        [
            *required("image_id"),
            pa.field("cluster", pa.int32()),
            pa.field("similarity", pa.float32()),
            *STATUS,
        ]
    ),
    "image_id",
    ("image_id",),
)

_PAIR = [*required("pair_id", "query_id", "image_id"), pa.field("proposed", pa.bool_(), nullable=False)]
PAIRS = Table(
    "pairs",
    pa.schema([*_PAIR, pa.field("experts", pa.list_(pa.string())), pa.field("ranks", pa.list_(pa.int32())), *STATUS]),
    "pair_id",
    ("query_id", "image_id"),
)

LABELS = Table(
    "labels",
    pa.schema(
        [
            *required("pair_id", "verifier"),
            pa.field("label", pa.string()),
            pa.field("confidence", pa.float32()),
            pa.field("explanation", pa.string()),
            *STATUS,
        ]
    ),
    "pair_id",
    ("pair_id",),
)

DECISIONS = Table(
    "decisions",
    pa.schema([*_PAIR, *required("label"), pa.field("votes", pa.list_(pa.string())), *STATUS]),
    "pair_id",
    ("query_id", "image_id"),
)
