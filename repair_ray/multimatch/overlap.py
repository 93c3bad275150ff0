"""What the benchmark shares with what is trained on, and a training list without it.

Near duplicates are pictures with the same pixels, perceptual hashes that differ in few bits (`data.near_bits`), or
embeddings of a cosine that reaches `multimatch.overlap.cosine`.
"""

from __future__ import annotations

import csv
import os
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from repair_ray import tables
from repair_ray.config import Config
from repair_ray.data.duplicates import cross_links, cross_near
from repair_ray.engines.searcher import Searcher
from repair_ray.multimatch.experts import Expert, embed_pictures
from repair_ray.multimatch.gallery import features_in_gallery, gallery_ids, places_of
from repair_ray.multimatch.products import GALLERY, OVERLAP, TRAINED_FEATURES, section_of, settings_of, usable
from repair_ray.run import IMAGES, Recipe, Run
from repair_ray.stages.duplicates import EMBEDDING, PERCEPTUAL, PIXELS
from repair_ray.stages.graph import Progress
from repair_ray.stages.rows import Row
from repair_ray.stages.vectors import read_embeddings

KEPT = "kept.csv"
COLUMNS = ("image_id", "name", "source")
QUANTILES = (0.5, 0.9, 0.99, 1.0)


def make_overlap(run: Run, config: Config, centre: Expert, progress: Progress) -> None:
    """Make the `overlap` table: a row for each training picture and way in which it is near a gallery's picture.

    Beside it `kept.csv` lists the training pictures without any: the decontaminated training list. Nothing is made
    without `multimatch.overlap.split`, or where that split has no picture.
    """
    chosen = section_of(config)
    settings, split = chosen.overlap, chosen.overlap.split
    if split is None:
        return
    trained = usable(run.read(IMAGES), split=split)
    if not len(trained):
        return
    parents: tuple[str, ...] = (IMAGES, GALLERY)
    if settings.cosine is not None:
        embed_pictures(run, config, TRAINED_FEATURES, centre, split, progress)
        parents = (*parents, TRAINED_FEATURES, centre.product)
    audited = settings_of(overlap=settings.model_dump(mode="json"))
    recipe = Recipe({**audited, "data": {"near_bits": config.data.near_bits}}, parents)
    if run.ready(OVERLAP, recipe):
        return
    start = time.monotonic()
    images = run.read(IMAGES)
    gallery = images.filter(pc.is_in(images["image_id"], pa.array(gallery_ids(run))))
    rows = [
        _row(PIXELS, split, chosen.split, trained, gallery, one, other, 0.0)
        for one, other in cross_links(trained["pixel_hash"].to_pylist(), gallery["pixel_hash"].to_pylist())
    ]
    hashes = trained["perceptual_hash"].to_pylist(), gallery["perceptual_hash"].to_pylist()
    rows += [
        _row(PERCEPTUAL, split, chosen.split, trained, gallery, one, other, float(bits))
        for one, other, bits in cross_near(*hashes, config.data.near_bits or 0)
    ]
    cosines: dict[str, Any] | None = None
    if settings.cosine is not None:
        near, cosines = _near_embeddings(run, config, centre, settings.cosine)
        rows += near
    table = tables.to_table(rows, tables.DUPLICATES.schema)
    dropped = set(table["item_id"].to_pylist())
    _write_kept(run.path(OVERLAP) / KEPT, trained, dropped)
    facts = {
        "split": split,
        "trained": len(trained),
        "gallery": len(gallery),
        "ways": dict(Counter(table["way"].to_pylist())),
        "dropped": len(dropped),
        "kept": len(trained) - len(dropped),
        "gallery_with_duplicates": len(set(table["other_id"].to_pylist())),
        "nearest_cosine": cosines,
    }
    run.commit(OVERLAP, recipe, tables.DUPLICATES, table, time.monotonic() - start, overlap=facts)


def _row(
    way: str, split: str, other_split: str, trained: pa.Table, gallery: pa.Table, one: int, other: int, distance: float
) -> Row:
    ids = trained["image_id"][one].as_py(), gallery["image_id"][other].as_py()
    return _named(way, split, other_split, *ids, distance)


def _named(way: str, split: str, other_split: str, item: str, other: str, distance: float) -> Row:
    return {
        "duplicate_id": tables.row_id(item, way),
        "item_id": item,
        "kind": tables.IMAGE,
        "split": split,
        "other_id": other,
        "other_split": other_split,
        "way": way,
        "distance": distance,
        "status": tables.OK,
    }


def _near_embeddings(run: Run, config: Config, centre: Expert, least: float) -> tuple[list[Row], dict[str, Any]]:
    """Training pictures whose nearest gallery picture reaches `least`, and quantiles of all nearest cosines."""
    chosen = section_of(config)
    assert chosen.overlap.split is not None
    ids = gallery_ids(run)
    features, places = features_in_gallery(run, centre.product, chosen.split, places_of(run))
    searcher = Searcher(features, model=centre.name, memory_bytes=config.mining.memory_mb * 2**20)
    queries = read_embeddings(run, TRAINED_FEATURES, tables.IMAGE, chosen.overlap.split)
    scores, found = searcher.top_k(queries.features, 1, centre.name)
    rows = [
        _named(EMBEDDING, chosen.overlap.split, chosen.split, item, ids[places[place]], 1 - score)
        for item, score, place in zip(queries.ids, scores[:, 0].tolist(), found[:, 0].tolist(), strict=True)
        if score >= least
    ]
    spread = np.quantile(scores[:, 0], QUANTILES)
    return rows, {f"{q:g}": round(float(value), 4) for q, value in zip(QUANTILES, spread, strict=True)}


def _write_kept(path: Path, trained: pa.Table, dropped: set[str]) -> None:
    temporary = path.with_suffix(".tmp")
    with temporary.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        for row in sorted(trained.select(COLUMNS).to_pylist(), key=lambda row: row["source"] or ""):
            if row["image_id"] not in dropped:
                writer.writerow([row[name] for name in COLUMNS])  # for programs: as they are
    os.replace(temporary, path)
