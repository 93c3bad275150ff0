"""What a text-only run trains on and is measured on."""

from __future__ import annotations

import pyarrow as pa

from repair_ray.tables.base import STATUS, Table

TEXTS = Table(
    "texts",
    pa.schema(
        [
            pa.field("text_id", pa.string(), nullable=False),
            pa.field("group_id", pa.string(), nullable=False),
            pa.field("text", pa.string()),
            pa.field("text_key", pa.string()),
            pa.field("source", pa.string(), nullable=False),
            *STATUS,
        ]
    ),
    "text_id",
    ("text_id",),
)

SENTENCE_PAIRS = Table(
    "sentence_pairs",
    pa.schema(
        [
            pa.field("pair_id", pa.string(), nullable=False),
            pa.field("first", pa.string()),
            pa.field("second", pa.string()),
            pa.field("score", pa.float64()),
            pa.field("subset", pa.string()),
            pa.field("source", pa.string(), nullable=False),
            *STATUS,
        ]
    ),
    "pair_id",
    ("pair_id",),
)
