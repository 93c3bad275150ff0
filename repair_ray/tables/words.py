"""What look-alike words are found in and made of: clips, matches, prototypes, confusable words (SAN)."""

from __future__ import annotations

import pyarrow as pa

from repair_ray.tables.base import STATUS, Table

_FORM = pa.struct([("text", pa.string()), ("tag", pa.string()), ("count", pa.int64())])
# A batch's share of a word: sums are integers in units of `engines.san.prototypes.UNIT`, so that they add up exactly.
_WORD_SHARE = pa.struct(
    [
        *((name, pa.string()) for name in ("lemma", "pos")),
        *((name, pa.int64()) for name in ("images", "matches")),
        ("best", pa.float32()),
        ("sum", pa.list_(pa.int64())),
        ("text_vector", pa.list_(pa.float32())),
        ("forms", pa.list_(_FORM)),
    ]
)

# Precomputed clips; their features stay where they were read.
CLIPS = Table(
    "clips",
    pa.schema(
        [
            pa.field("clip_id", pa.string(), nullable=False),
            pa.field("split", pa.string()),
            pa.field("captions", pa.list_(pa.string())),
            pa.field("frames", pa.int32()),
            pa.field("source", pa.string()),
            *STATUS,
        ]
    ),
    "clip_id",
    ("clip_id",),
)

# One row a picture: how many of its visual tokens matched a word. Of each batch one row carries the sums of the words,
# over the pictures that it says it `covers`.
MATCHES = Table(
    "matches",
    pa.schema(
        [
            pa.field("image_id", pa.string(), nullable=False),
            pa.field("matches", pa.int32()),
            pa.field("covers", pa.list_(pa.string())),
            pa.field("words", pa.list_(_WORD_SHARE)),
            *STATUS,
        ]
    ),
    "image_id",
    ("image_id",),
)

PROTOTYPES = Table(
    "prototypes",
    pa.schema(
        [
            *(pa.field(name, pa.string(), nullable=False) for name in ("word_id", "word", "lemma", "pos")),
            *(pa.field(name, pa.int64(), nullable=False) for name in ("images", "matches")),
            pa.field("best", pa.float32()),
            pa.field("vector", pa.list_(pa.float32())),
            pa.field("forms", pa.list_(_FORM)),
            *STATUS,
        ]
    ),
    "word_id",
    ("lemma", "pos"),
)

CONFUSABLE = Table(
    "confusable",
    pa.schema(
        [
            *(pa.field(name, pa.string(), nullable=False) for name in ("pair_id", "word", "pos")),
            pa.field("other", pa.string()),
            pa.field("rank", pa.int32()),
            pa.field("cosine", pa.float32()),
            *STATUS,
        ]
    ),
    "pair_id",
    ("word", "pos", "rank", "pair_id"),
)

# What the stages of negatives read: one picture a row with its own captions, and those of other pictures of its group.
CAPTIONED = pa.schema(
    [
        ("image_id", pa.string()),
        ("query_id", pa.string()),
        ("uri", pa.string()),
        ("offset", pa.int64()),
        ("length", pa.int64()),
        ("captions", pa.list_(pa.struct([("caption_id", pa.string()), ("text", pa.string())]))),
        ("group_captions", pa.list_(pa.string())),
    ]
)
