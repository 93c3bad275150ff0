"""Evaluate: full-ranking metrics of one retriever on the evaluation split, and the rank of every query."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa

from repair_ray import tables
from repair_ray.config import Config
from repair_ray.evaluation.protocols import SCORES, protocol_facts
from repair_ray.evaluation.retrieval import best_ranks, direction_metrics
from repair_ray.run import CAPTIONS, Recipe, Run
from repair_ray.stages.positives import answers
from repair_ray.stages.vectors import read_embeddings

NO_POSITIVE = "no positive in the gallery"


def evaluate(run: Run, config: Config, product: str, embeddings: str) -> dict[str, Any]:
    """Metrics `{"i2t": {...}, "t2i": {...}}` in percent and what they were measured on, kept as facts of `product`.

    The product is a `ranks` table: the rank of each query's best positive.
    """
    split = config.evaluation.split
    recipe = Recipe({"evaluation": config.evaluation.model_dump(mode="json"), "seed": config.seed}, (embeddings,))
    if not run.ready(product, recipe):
        start = time.monotonic()
        ranks = rank_queries(run, embeddings, split)
        metrics = {
            direction: direction_metrics(
                np.fromiter(found.values(), np.int64), config.evaluation.bootstrap, config.seed
            )
            for direction, found in ranks.items()
        }
        protocol = _protocol(run, embeddings, split, ranks)
        table = _table(ranks)
        run.commit(product, recipe, tables.RANKS, table, time.monotonic() - start, metrics=metrics, protocol=protocol)
    return dict(run.manifest(product) or {})


def rank_queries(run: Run, embeddings: str, split: str) -> dict[str, dict[str, int]]:
    """`{"i2t": {image id: rank}, "t2i": {caption id: rank}}`, in the order of the ids; 0 where there is no positive."""
    images = read_embeddings(run, embeddings, tables.IMAGE, split)
    captions = read_embeddings(run, embeddings, tables.CAPTION, split)
    right = answers(run, split, pa.array(images.ids, pa.string()), pa.array(captions.ids, pa.string()))
    found = {}
    for direction, queries, gallery in (("i2t", images, captions), ("t2i", captions, images)):
        ranks = best_ranks(queries.features, gallery.features, right[direction])
        found[direction] = dict(zip(queries.ids, ranks.tolist(), strict=True))
    return found


def _protocol(run: Run, embeddings: str, split: str, ranks: dict[str, dict[str, int]]) -> dict[str, Any]:
    captions = [
        row
        for row in run.read(CAPTIONS, ["caption_id", "image_id", "text"]).to_pylist()
        if row["caption_id"] in ranks["t2i"]
    ]
    counts = Counter(row["image_id"] for row in captions)
    made = run.manifest(embeddings) or {}
    return {
        **protocol_facts(
            split,
            list(ranks["i2t"]),
            [(row["caption_id"], row["text"]) for row in captions],
            [counts[image] for image in ranks["i2t"]],
        ),
        "model": made.get("model"),
        "precision": made["recipe"]["settings"].get("retriever", {}).get("precision"),
        "scores": SCORES,
    }


def _table(ranks: dict[str, dict[str, int]]) -> pa.Table:
    rows: list[dict[str, object]] = [
        {
            "query_id": query,
            "direction": direction,
            "rank": rank or None,
            "status": tables.OK if rank else tables.REJECTED,
            "reason": None if rank else NO_POSITIVE,
        }
        for direction, found in ranks.items()
        for query, rank in found.items()
    ]
    return tables.to_table(rows, tables.RANKS.schema)
