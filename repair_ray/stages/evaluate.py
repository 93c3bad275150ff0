"""Evaluate: full-ranking metrics of one retriever on the evaluation split."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from repair_ray import tables
from repair_ray.config import Config
from repair_ray.evaluation.retrieval import TIE_RULE, retrieval_metrics
from repair_ray.run import Recipe, Run
from repair_ray.stages.mine import Positives
from repair_ray.stages.vectors import read_embeddings


def evaluate(run: Run, config: Config, product: str, embeddings: str) -> dict[str, Any]:
    """Metrics `{"i2t": {...}, "t2i": {...}}` in percent, kept as the facts of `product`."""
    split = config.evaluation.split
    recipe = Recipe({"evaluation": config.evaluation.model_dump(mode="json"), "seed": config.seed}, (embeddings,))
    if not run.ready(product, recipe):
        start = time.monotonic()
        images = read_embeddings(run, embeddings, tables.IMAGE, split)
        captions = read_embeddings(run, embeddings, tables.CAPTION, split)
        positives = Positives.read(run, split)
        metrics = retrieval_metrics(
            images.features,
            captions.features,
            _places(images.ids, captions.ids, positives.of_image),
            _places(captions.ids, images.ids, positives.of_caption),
            bootstrap=config.evaluation.bootstrap,
            seed=config.seed,
        )
        seconds = time.monotonic() - start
        protocol = {"split": split, "images": len(images.ids), "captions": len(captions.ids), "ties": TIE_RULE}
        rows = len(images.ids) + len(captions.ids)
        run.finish(product, recipe, seconds, metrics=metrics, protocol=protocol, rows=rows)
    return dict(run.manifest(product) or {})


def _places(queries: list[str], gallery: list[str], positives: dict[str, frozenset[str]]) -> list[np.ndarray]:
    place = {item: i for i, item in enumerate(gallery)}
    return [np.array(sorted(place[p] for p in positives[query] if p in place), np.int64) for query in queries]
