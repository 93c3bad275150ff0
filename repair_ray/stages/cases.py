"""Failures joined with the captions and pictures on both sides: what language backends and editors may see."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from repair_ray import tables
from repair_ray.engines.language import Case, Mismatch
from repair_ray.run import Run
from repair_ray.stages.ingest import CAPTIONS, IMAGES
from repair_ray.stages.rows import Row
from repair_ray.stages.vectors import read_embeddings


def make_cases(run: Run, failures: list[Row], split: str, embeddings: str | None = None) -> pa.Table:
    """`CASES` rows for failures (with `judgement` and `mismatches` where a failure carries them).

    With `embeddings`, the query's and the candidate's features come along, for the edit stage to select by.
    """
    images = {row["image_id"]: row for row in _of_split(run.read(IMAGES), split)}
    captions = {row["caption_id"]: row for row in _of_split(run.read(CAPTIONS), split)}
    texts = defaultdict(list)
    for caption in sorted(captions.values(), key=lambda row: (row["image_id"], row["position"])):
        texts[caption["image_id"]].append(caption["text"])
    vectors = _vectors(run, embeddings, split) if embeddings else {}
    return tables.to_table([_case(row, images, captions, texts, vectors) for row in failures], tables.CASES)


def _of_split(table: pa.Table, split: str) -> list[Row]:
    return list(table.filter(pc.equal(table["split"], split)).to_pylist())


def _vectors(run: Run, embeddings: str, split: str) -> dict[str, np.ndarray]:
    found: dict[str, np.ndarray] = {}
    for kind in (tables.IMAGE, tables.CAPTION):
        embedded = read_embeddings(run, embeddings, kind, split)
        found |= dict(zip(embedded.ids, embedded.features, strict=True))
    return found


def _case(
    row: Row,
    images: dict[str, Row],
    captions: dict[str, Row],
    texts: dict[str, list[str]],
    vectors: dict[str, np.ndarray],
) -> Row:
    i2t = row["direction"] == "i2t"
    caption = captions[row["candidate_id"] if i2t else row["query_id"]]
    query_image = row["query_id"] if i2t else caption["image_id"]
    candidate_image = caption["image_id"] if i2t else row["candidate_id"]
    case: dict[str, Any] = {
        **row,
        "query_text": None if i2t else caption["text"],
        "candidate_text": caption["text"] if i2t else None,
        "query_captions": texts[query_image],
        "candidate_captions": texts[candidate_image],
        "query_vector": vectors.get(row["query_id"]),
        "candidate_vector": vectors.get(row["candidate_id"]),
    }
    for side, image in (("query", images[query_image]), ("candidate", images[candidate_image])):
        case |= {f"{side}_{part}": image[part] for part in ("uri", "offset", "length")}
    return case


def language_case(row: Row) -> Case:
    """The language tasks' view of a `CASES` row."""
    return Case(
        direction=row["direction"],
        query_captions=tuple(row["query_captions"]),
        candidate_captions=tuple(row["candidate_captions"]),
        query_text=row["query_text"],
        candidate_text=row["candidate_text"],
    )


def mismatches_of(row: Row) -> tuple[Mismatch, ...]:
    """The residual that a row carries."""
    return tuple(Mismatch(m["type"], m["query"], m["candidate"]) for m in row["mismatches"] or ())
