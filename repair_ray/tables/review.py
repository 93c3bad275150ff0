"""What a review of edits is made of: the sample that everybody is shown, and examples for the judge."""

from __future__ import annotations

import pyarrow as pa

from repair_ray.tables.base import MISMATCH, STATUS, Table, required

# Accepted edits to review, by their place in the order in which they are shown.
REVIEW_SAMPLE = Table(
    "review_sample",
    pa.schema(
        [
            *required("item_id", "failure_id", "direction"),
            pa.field("place", pa.int32(), nullable=False),
            pa.field("error_types", pa.list_(pa.string()), nullable=False),
            *STATUS,
        ]
    ),
    "item_id",
    ("place",),
)

# Reviewed failures as the judge is shown them, with the judgement that people came to.
EXAMPLES = Table(
    "examples",
    pa.schema(
        [
            *required("item_id", "direction", "judgement"),
            pa.field("query_text", pa.string()),
            pa.field("candidate_text", pa.string()),
            pa.field("query_captions", pa.list_(pa.string()), nullable=False),
            pa.field("candidate_captions", pa.list_(pa.string()), nullable=False),
            pa.field("mismatches", pa.list_(MISMATCH), nullable=False),
            *STATUS,
        ]
    ),
    "item_id",
    ("item_id",),
)
