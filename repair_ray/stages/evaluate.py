"""Evaluate: full-ranking metrics of one retriever on the evaluation split, and what every query found."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from repair_ray import tables
from repair_ray.config import Config
from repair_ray.evaluation.compare import Ranks
from repair_ray.evaluation.protocols import SCORES, protocol_facts
from repair_ray.evaluation.retrieval import Ranking, direction_metrics, ranking
from repair_ray.run import CAPTIONS, Recipe, Run
from repair_ray.stages.positives import answers
from repair_ray.stages.vectors import read_embeddings

NO_POSITIVE = "no positive in the gallery"
# Items kept of each query, for people who look at what was ranked first.
TOP = 5


@dataclass(frozen=True)
class Asked:
    """The queries of one direction with what they found, and the gallery that they asked, in the order of the ids."""

    queries: list[str]
    gallery: list[str]
    found: Ranking


def evaluate(run: Run, config: Config, product: str, embeddings: str) -> dict[str, Any]:
    """Metrics `{"i2t": {...}, "t2i": {...}}` in percent and what they were measured on, kept as facts of `product`.

    The product is a `ranks` table: of each query the rank of its best positive and the `TOP` items ranked highest.
    Tables of earlier versions lack the items; their figures hold all the same.
    """
    split = config.evaluation.split
    recipe = Recipe({"evaluation": config.evaluation.model_dump(mode="json"), "seed": config.seed}, (embeddings,))
    if not run.ready(product, recipe):
        start = time.monotonic()
        asked = ask_all(run, embeddings, split, TOP)
        metrics = {
            direction: direction_metrics(part.found.ranks, config.evaluation.bootstrap, config.seed)
            for direction, part in asked.items()
        }
        protocol = _protocol(run, embeddings, split, asked["i2t"].queries, asked["t2i"].queries)
        table = pa.concat_tables([_table(direction, part) for direction, part in asked.items()])
        run.commit(product, recipe, tables.RANKS, table, time.monotonic() - start, metrics=metrics, protocol=protocol)
    return dict(run.manifest(product) or {})


def rank_queries(run: Run, embeddings: str, split: str) -> dict[str, Ranks]:
    """`{"i2t": {image id: rank}, "t2i": {caption id: rank}}`, in the order of the ids; 0 where there is no positive."""
    return {
        direction: dict(zip(part.queries, part.found.ranks.tolist(), strict=True))
        for direction, part in ask_all(run, embeddings, split, 0).items()
    }


def read_ranks(run: Run, product: str) -> dict[str, Ranks]:
    """The same from a finished `ranks` table. Raises `RunError` when it is not finished."""
    found: dict[str, Ranks] = {"i2t": {}, "t2i": {}}
    for row in run.read(product, ["query_id", "direction", "rank"]).to_pylist():
        found[row["direction"]][row["query_id"]] = row["rank"] or 0
    return found


def ask_all(run: Run, embeddings: str, split: str, keep: int) -> dict[str, Asked]:
    """Every image asked for captions (`i2t`), every caption for images (`t2i`); the `keep` best items of each."""
    images = read_embeddings(run, embeddings, tables.IMAGE, split)
    captions = read_embeddings(run, embeddings, tables.CAPTION, split)
    right = answers(run, split, pa.array(images.ids, pa.string()), pa.array(captions.ids, pa.string()))
    return {
        direction: Asked(queries.ids, gallery.ids, ranking(queries.features, gallery.features, right[direction], keep))
        for direction, queries, gallery in (("i2t", images, captions), ("t2i", captions, images))
    }


def _protocol(run: Run, embeddings: str, split: str, images: Sequence[str], asked: Sequence[str]) -> dict[str, Any]:
    known = set(asked)
    captions = [
        row for row in run.read(CAPTIONS, ["caption_id", "image_id", "text"]).to_pylist() if row["caption_id"] in known
    ]
    counts = Counter(row["image_id"] for row in captions)
    made = run.manifest(embeddings) or {}
    return {
        **protocol_facts(
            split,
            images,
            [(row["caption_id"], row["text"]) for row in captions],
            [counts[image] for image in images],
        ),
        "model": made.get("model"),
        "precision": made["recipe"]["settings"].get("retriever", {}).get("precision"),
        "scores": SCORES,
    }


def _table(direction: str, asked: Asked) -> pa.Table:
    found = asked.found
    answered = found.ranks > 0
    gallery = pa.array(asked.gallery, pa.string())
    kept = found.top.shape[1]
    ranked = pa.StructArray.from_arrays(
        [
            gallery.take(pa.array(found.top.ravel())),
            pa.array(found.top_scores.ravel(), pa.float32()),
            pa.array(found.top_right.ravel()),
        ],
        names=["item_id", "score", "right"],
    )
    offsets = pa.array(np.arange(0, kept * len(answered) + 1, kept), pa.int32())
    columns = {
        "query_id": asked.queries,
        "direction": [direction] * len(answered),
        "rank": pa.array(found.ranks, mask=~answered),
        "ground_truth_id": gallery.take(pa.array(found.best, mask=~answered)),
        "ground_truth_score": pa.array(found.best_scores, mask=~answered),
        "top": pa.ListArray.from_arrays(offsets, ranked),
        "status": [tables.OK if there else tables.REJECTED for there in answered],
        "reason": [None if there else NO_POSITIVE for there in answered],
    }
    return pa.table({name: columns[name] for name in tables.RANKS.schema.names}).cast(tables.RANKS.schema)
