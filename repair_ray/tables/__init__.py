"""Every table of a run: its columns, its row id, its statuses. The only room that names columns."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import pyarrow as pa

from repair_ray.tables.base import MISMATCH, STATUS
from repair_ray.tables.base import Table as Table
from repair_ray.tables.review import EXAMPLES as EXAMPLES
from repair_ray.tables.review import REVIEW_SAMPLE as REVIEW_SAMPLE
from repair_ray.tables.texts import SENTENCE_PAIRS as SENTENCE_PAIRS
from repair_ray.tables.texts import TEXTS as TEXTS
from repair_ray.tables.words import CAPTIONED as CAPTIONED
from repair_ray.tables.words import CLIPS as CLIPS
from repair_ray.tables.words import CONFUSABLE as CONFUSABLE
from repair_ray.tables.words import MATCHES as MATCHES
from repair_ray.tables.words import PROTOTYPES as PROTOTYPES

OK = "ok"
ERROR = "error"
REJECTED = "rejected"
# By people: training leaves such an edit out, its failure too.
REFUSED = "refused"
NO_FAILURE = "no_failure"

IMAGE = "image"
CAPTION = "caption"
# Kinds of edits: made by an engine, the ground truth that stands in for one, an item that is wrong for its query, and
# another way to say its ground truth.
EDITED = "edited"
PAIRED = "paired"
NEGATIVE = "negative"
PARAPHRASE = "paraphrase"

_IMAGE_REF = [
    pa.field("uri", pa.string()),
    pa.field("offset", pa.int64()),
    pa.field("length", pa.int64()),
]


_RANKED = pa.struct([("item_id", pa.string()), ("score", pa.float32()), ("right", pa.bool_())])
_CANDIDATE = pa.struct(
    [
        ("text", pa.string()),
        ("uri", pa.string()),
        ("offset", pa.int64()),
        ("length", pa.int64()),
        ("align", pa.float32()),
        ("scaffold", pa.float32()),
        ("status", pa.string()),
        ("reason", pa.string()),
    ]
)
IMAGES = Table(
    "images",
    pa.schema(
        [
            pa.field("image_id", pa.string(), nullable=False),
            pa.field("split", pa.string(), nullable=False),
            pa.field("group_id", pa.string(), nullable=False),
            *_IMAGE_REF,
            pa.field("sha256", pa.string()),
            pa.field("name", pa.string()),
            pa.field("pixel_hash", pa.string()),
            pa.field("perceptual_hash", pa.string()),
            pa.field("width", pa.int32()),
            pa.field("height", pa.int32()),
            pa.field("source", pa.string()),
            *STATUS,
        ]
    ),
    "image_id",
    ("image_id",),
)

CAPTIONS = Table(
    "captions",
    pa.schema(
        [
            pa.field("caption_id", pa.string(), nullable=False),
            pa.field("image_id", pa.string(), nullable=False),
            pa.field("split", pa.string(), nullable=False),
            pa.field("group_id", pa.string(), nullable=False),
            pa.field("position", pa.int32(), nullable=False),
            pa.field("text", pa.string(), nullable=False),
            pa.field("text_key", pa.string(), nullable=False),
            *STATUS,
        ]
    ),
    "caption_id",
    ("caption_id",),
)

DUPLICATES = Table(
    "duplicates",
    pa.schema(
        [
            pa.field("duplicate_id", pa.string(), nullable=False),
            pa.field("item_id", pa.string(), nullable=False),
            pa.field("kind", pa.string(), nullable=False),
            pa.field("split", pa.string(), nullable=False),
            pa.field("other_id", pa.string(), nullable=False),
            pa.field("other_split", pa.string(), nullable=False),
            pa.field("way", pa.string(), nullable=False),
            pa.field("distance", pa.float32(), nullable=False),
            *STATUS,
        ]
    ),
    "duplicate_id",
    ("kind", "item_id", "way"),
)

EMBEDDINGS = Table(
    "embeddings",
    pa.schema(
        [
            pa.field("item_id", pa.string(), nullable=False),
            pa.field("kind", pa.string(), nullable=False),
            pa.field("split", pa.string(), nullable=False),
            pa.field("vector", pa.list_(pa.float32())),
            pa.field("truncated", pa.bool_()),
            *STATUS,
        ]
    ),
    "item_id",
    ("kind", "item_id"),
)

FAILURES = Table(
    "failures",
    pa.schema(
        [
            pa.field("failure_id", pa.string(), nullable=False),
            pa.field("direction", pa.string(), nullable=False),
            pa.field("query_id", pa.string(), nullable=False),
            pa.field("candidate_id", pa.string()),
            pa.field("ground_truth_id", pa.string()),
            pa.field("rank", pa.int32()),
            pa.field("score", pa.float32()),
            pa.field("ground_truth_score", pa.float32()),
            *STATUS,
        ]
    ),
    "query_id",
    ("direction", "query_id", "rank", "failure_id"),
)

VERDICTS = Table(
    "verdicts",
    pa.schema(
        [
            pa.field("failure_id", pa.string(), nullable=False),
            pa.field("direction", pa.string(), nullable=False),
            pa.field("judgement", pa.string()),
            pa.field("mismatches", pa.list_(MISMATCH)),
            pa.field("confidence", pa.float32()),
            pa.field("judge", pa.string()),
            pa.field("explanation", pa.string()),
            *STATUS,
        ]
    ),
    "failure_id",
    ("failure_id",),
)

EDITS = Table(
    "edits",
    pa.schema(
        [
            pa.field("failure_id", pa.string(), nullable=False),
            pa.field("direction", pa.string(), nullable=False),
            pa.field("query_id", pa.string(), nullable=False),
            pa.field("candidate_id", pa.string(), nullable=False),
            pa.field("ground_truth_id", pa.string(), nullable=False),
            pa.field("kind", pa.string()),
            pa.field("instruction", pa.string()),
            pa.field("candidates", pa.list_(_CANDIDATE)),
            pa.field("text", pa.string()),
            *_IMAGE_REF,
            pa.field("align_before", pa.float32()),
            pa.field("align", pa.float32()),
            pa.field("scaffold", pa.float32()),
            *STATUS,
        ]
    ),
    "failure_id",
    ("failure_id",),
)

# The accepted edits of earlier rounds, looked at again: the round that made them, whether their failure is still one,
# and how often they are drawn in training.
REPAIRS = replace(
    EDITS,
    name="repairs",
    schema=pa.schema(
        [
            *EDITS.schema,
            pa.field("round", pa.int32(), nullable=False),
            pa.field("still_fails", pa.bool_(), nullable=False),
            pa.field("weight", pa.float32(), nullable=False),
        ]
    ),
)

# Edits as people have left them: those that they refused have another status, and say why.
REVIEWED = replace(EDITS, name="reviewed")

# The edits of strategies that make several negatives of each caption of a picture, counted by picture.
NEGATIVES = replace(EDITS, id_column="query_id")

ANSWERS = Table(
    "answers",
    pa.schema(
        [
            pa.field("question_id", pa.string(), nullable=False),
            pa.field("task", pa.string(), nullable=False),
            pa.field("failure_id", pa.string()),
            pa.field("answer", pa.string()),
            pa.field("calls", pa.int32()),
            pa.field("input_tokens", pa.int32()),
            pa.field("output_tokens", pa.int32()),
            pa.field("seconds", pa.float32()),
            *STATUS,
        ]
    ),
    "question_id",
    ("question_id",),
)

RANKS = Table(
    "ranks",
    pa.schema(
        [
            pa.field("query_id", pa.string(), nullable=False),
            pa.field("direction", pa.string(), nullable=False),
            pa.field("rank", pa.int32()),
            # The best positive, and the items that were ranked highest, best first.
            pa.field("ground_truth_id", pa.string()),
            pa.field("ground_truth_score", pa.float32()),
            pa.field("top", pa.list_(_RANKED)),
            *STATUS,
        ]
    ),
    "query_id",
    ("direction", "query_id"),
)

# What the embed stage reads: every picture and caption of a split, with what is needed to fetch it.
ITEMS = pa.schema(
    [
        ("item_id", pa.string()),
        ("kind", pa.string()),
        ("split", pa.string()),
        ("text", pa.string()),
        ("uri", pa.string()),
        ("offset", pa.int64()),
        ("length", pa.int64()),
    ]
)

# What the mine stage reads: one query a row, with the place of its vector among those of its kind.
QUERIES = pa.schema(
    [
        ("query_id", pa.string()),
        ("direction", pa.string()),
        ("place", pa.int64()),
    ]
)

# What the audit and edit stages read: one failure a row, with everything that a language backend or editor may see.
CASES = pa.schema(
    [
        ("failure_id", pa.string()),
        ("direction", pa.string()),
        ("query_id", pa.string()),
        ("candidate_id", pa.string()),
        ("ground_truth_id", pa.string()),
        ("query_text", pa.string()),
        ("candidate_text", pa.string()),
        ("query_captions", pa.list_(pa.string())),
        ("candidate_captions", pa.list_(pa.string())),
        ("query_uri", pa.string()),
        ("query_offset", pa.int64()),
        ("query_length", pa.int64()),
        ("candidate_uri", pa.string()),
        ("candidate_offset", pa.int64()),
        ("candidate_length", pa.int64()),
        ("query_vector", pa.list_(pa.float32())),
        ("candidate_vector", pa.list_(pa.float32())),
        ("query_pixels", pa.string()),
        ("candidate_pixels", pa.string()),
        ("judgement", pa.string()),
        ("mismatches", pa.list_(MISMATCH)),
        # A model's answer to the stage's question, where a model was asked.
        ("question_id", pa.string()),
        ("answer", pa.string()),
        ("answer_status", pa.string()),
        ("answer_reason", pa.string()),
    ]
)

# What the ask stages read: a case and the task that is asked about it.
QUESTIONS = pa.schema([("task", pa.string()), *CASES])


def answer_row(answer: dict[str, object], question: dict[str, object]) -> dict[str, object]:
    """The `ANSWERS` row of an answer to a question."""
    asked = {name: question[name] for name in ("task", "failure_id")}
    return {**answer, **asked, "answer": answer["text"]}


def row_id(*parts: object) -> str:
    """A stable id of what a row is: 16 hex digits of the SHA-256 of its parts."""
    return hashlib.sha256("\x1f".join(map(str, parts)).encode()).hexdigest()[:16]


def edit_seed(seed: int, failure_id: str, number: int) -> int:
    """The seed of a failure's edited picture, 31 bits, from the run's seed; `number` is the candidate's."""
    return int(row_id(seed, failure_id, number), 16) % 2**31


def to_table(rows: list[dict[str, object]], schema: pa.Schema) -> pa.Table:
    """Rows as a table of exactly this schema: absent keys become nulls, other keys are left out."""
    return pa.table(
        {name: pa.array([row.get(name) for row in rows], schema.field(name).type) for name in schema.names},
        schema=schema,
    )


def filled(columns: dict[str, object], schema: pa.Schema) -> pa.Table:
    """Columns of one length as a table of exactly this schema: absent ones become nulls."""
    rows = len(next(iter(columns.values())))  # type: ignore[arg-type]
    absent = {name: pa.nulls(rows, schema.field(name).type) for name in schema.names if name not in columns}
    return pa.table({name: {**columns, **absent}[name] for name in schema.names}, schema=schema)
