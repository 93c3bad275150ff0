"""Failures joined with the captions and pictures on both sides: what language backends and editors may see."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from repair_ray import tables
from repair_ray.engines.language import Case, Mismatch
from repair_ray.run import CAPTIONS, IMAGES, Run
from repair_ray.stages.rows import Row
from repair_ray.stages.vectors import read_embeddings


def passed(run: Run, failures: str, verdicts: str, *, audit: bool) -> list[Row]:
    """Failures that go on, with `judgement` and `mismatches`: those judged valid, or, without `audit`, all judged."""
    judged = {row["failure_id"]: row for row in run.read(verdicts).to_pylist()}
    table = run.read(failures)
    rows = []
    for failure in table.filter(pc.equal(table["status"], tables.OK)).to_pylist():
        verdict = judged[failure["failure_id"]]
        if verdict["status"] == tables.OK or (not audit and verdict["status"] != tables.ERROR):
            rows.append({**failure, "judgement": verdict["judgement"], "mismatches": verdict["mismatches"]})
    return rows


def make_cases(run: Run, failures: list[Row], split: str, embeddings: str | None = None) -> pa.Table:
    """`CASES` rows for failures (with `judgement` and `mismatches` where a failure carries them).

    With `embeddings`, the query's and the candidate's features come along, for the edit stage to select by.
    """
    images = {row["image_id"]: row for row in _of_split(run.read(IMAGES), split)}
    captions = {row["caption_id"]: row for row in _of_split(run.read(CAPTIONS), split)}
    texts = _texts_of(images, captions)
    vectors = _vectors(run, embeddings, split) if embeddings else {}
    return tables.to_table([_case(row, images, captions, texts, vectors) for row in failures], tables.CASES)


def captions_of_images(run: Run, split: str) -> dict[str, list[str]]:
    """What is known of each picture of a split: its own captions, then those of its group, each text once."""
    images = {row["image_id"]: row for row in _of_split(run.read(IMAGES), split)}
    return _texts_of(images, {row["caption_id"]: row for row in _of_split(run.read(CAPTIONS), split)})


def _texts_of(images: dict[str, Row], captions: dict[str, Row]) -> dict[str, list[str]]:
    """What is known of each picture: its own captions, then those of other pictures of its group, each text once."""
    own: dict[str, list[str]] = defaultdict(list)
    for caption in sorted(captions.values(), key=lambda row: (row["image_id"], row["position"])):
        own[caption["image_id"]].append(caption["text"])
    groups: dict[str, list[str]] = defaultdict(list)
    for image in sorted(images):
        groups[images[image]["group_id"]].append(image)
    return {
        image: list(dict.fromkeys([*own[image], *(text for other in groups[row["group_id"]] for text in own[other])]))
        for image, row in images.items()
    }


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
    texts: Mapping[str, list[str]],
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
        case[f"{side}_pixels"] = image["pixel_hash"]
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
