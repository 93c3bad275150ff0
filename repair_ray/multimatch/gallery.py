"""The gallery: the pictures that are searched, sampled for diversity where the split has more than are wanted."""

from __future__ import annotations

import time

import numpy as np

from repair_ray import tables
from repair_ray.config import Config
from repair_ray.evaluation.diversity import cluster, sample_clusters
from repair_ray.multimatch.experts import Expert, embed_pictures
from repair_ray.multimatch.products import FEATURES, GALLERY, section_of, settings_of, usable
from repair_ray.run import IMAGES, Recipe, Run, RunError
from repair_ray.stages.graph import Progress
from repair_ray.stages.rows import Row
from repair_ray.stages.vectors import read_embeddings
from repair_ray.tables import multimatch as benchmark_tables

BEYOND = "beyond its cluster's quota"


def make_gallery(run: Run, config: Config, centre: Expert, progress: Progress) -> None:
    """Make the `gallery` table: all pictures of the split, those that are not sampled as rejected rows.

    Raises:
        RunError: fewer pictures than the gallery's size, or than clusters.
    """
    chosen = section_of(config)
    settings, split = chosen.gallery, chosen.split
    if settings.size is None:
        recipe = Recipe(settings_of(split=split, gallery={"size": None}), (IMAGES,))
    else:
        embed_pictures(run, config, FEATURES, centre, split, progress)
        sampling = settings_of(split=split, gallery=settings.model_dump(mode="json", exclude={"expert"}))
        recipe = Recipe({**sampling, "seed": config.seed}, (IMAGES, FEATURES))
    if run.ready(GALLERY, recipe):
        return
    start = time.monotonic()
    if settings.size is None:
        images = usable(run.read(IMAGES, ["image_id", "split", "status"]), split=split)["image_id"].to_pylist()
        rows: list[Row] = [{"image_id": image, "status": tables.OK} for image in images]
    else:
        rows = _sampled(run, config, settings.size)
    if not rows:
        raise RunError(f"split {split!r} has no usable picture: there is no gallery")
    run.commit(
        GALLERY,
        recipe,
        benchmark_tables.GALLERY,
        tables.to_table(rows, benchmark_tables.GALLERY.schema),
        time.monotonic() - start,
        size=sum(row["status"] == tables.OK for row in rows),
    )


def _sampled(run: Run, config: Config, size: int) -> list[Row]:
    chosen = section_of(config)
    settings = chosen.gallery
    found = read_embeddings(run, FEATURES, tables.IMAGE, chosen.split)
    for key, wanted in (("size", size), ("clusters", settings.clusters)):
        if wanted > len(found.ids):
            raise RunError(
                f"multimatch.gallery.{key}={wanted} is larger than the pool: split {chosen.split!r} has "
                f"{len(found.ids)} pictures that could be embedded"
            )
    own, similarity = cluster(found.features, settings.clusters, config.seed)
    sampled = sample_clusters(own, similarity, size, settings.pick, config.seed)
    return [
        {
            "image_id": image,
            "cluster": int(number),
            "similarity": float(near),
            "status": tables.OK if taken else tables.REJECTED,
            "reason": None if taken else BEYOND,
        }
        for image, number, near, taken in zip(found.ids, own, similarity, sampled, strict=True)
    ]


def gallery_ids(run: Run) -> list[str]:
    """The pictures of the gallery, ordered by their ids."""
    return sorted(usable(run.read(GALLERY))["image_id"].to_pylist())


def places_of(run: Run) -> dict[str, int]:
    """The place of each picture in `gallery_ids`."""
    return {image: place for place, image in enumerate(gallery_ids(run))}


def features_in_gallery(run: Run, product: str, split: str, places: dict[str, int]) -> tuple[np.ndarray, np.ndarray]:
    """An expert's features `[M, D]` of the pictures that it could embed, and their places in the gallery `[M]`."""
    found = read_embeddings(run, product, tables.IMAGE, split)
    return found.features, np.array([places[image] for image in found.ids], np.int64)
