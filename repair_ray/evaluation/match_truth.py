"""What the demo's world knows of a benchmark on its scenes: are the labels right, and how many matches were missed?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from repair_ray.data.store import ImageStore
from repair_ray.evaluation.agreement import share
from repair_ray.evaluation.completeness import completeness
from repair_ray.run import IMAGES, Run
from repair_ray.world.render import scene_of
from repair_ray.world.scene import Scene
from repair_ray.world.truth import describes

Row = dict[str, Any]


def true_matches(queries: Sequence[tuple[str, str]], scenes: dict[str, Scene]) -> set[tuple[str, str]]:
    """All pairs of a query's id and a picture's of which the query is true.

    Args:
        queries: id and text of each.
        scenes: by the picture's id.
    """
    return {(query, image) for query, text in queries for image, scene in scenes.items() if describes(text, scene)}


def measure_matches(
    run: Run, store: ImageStore, queries: Sequence[tuple[str, str]], gallery: Sequence[str], rows: Sequence[Row]
) -> dict[str, Any]:
    """The labels of `matches` rows against the scenes, and the candidates' true recall beside its estimate.

    Precision: of the pairs labelled as matches, how many are. Recall: of the true matches among labelled pairs, how
    many were labelled so. `estimate` is what `completeness` gives where the truth labels the same pairs.
    """
    references = {row["image_id"]: row for row in run.read(IMAGES).to_pylist()}
    scenes = {
        image: scene_of(store.bytes(*(references[image][part] for part in ("uri", "offset", "length"))))
        for image in gallery
    }
    true = true_matches(queries, scenes)
    seen = [(row, (row["query_id"], row["image_id"]) in true) for row in rows]
    inside = [right for row, right in seen if row["proposed"]]
    outside = [right for row, right in seen if not row["proposed"]]
    estimate = completeness(sum(inside), len(queries) * len(gallery) - len(inside), len(outside), sum(outside))
    labelled = [right for row, right in seen if row["label"] == "yes"]
    return {
        "matches": len(true),
        "precision": share(sum(labelled), len(labelled)),
        "recall": share(sum(right and row["label"] == "yes" for row, right in seen), sum(right for _, right in seen)),
        "union_recall": share(sum(inside), len(true)),
        "estimate": estimate.facts(),
    }
