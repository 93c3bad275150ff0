"""Near duplicates between what is trained on and the gallery, by hand; embeddings: see the integration test."""

from __future__ import annotations

import csv
from pathlib import Path

from repair_ray import tables
from repair_ray.config import parse_config
from repair_ray.multimatch.experts import Expert
from repair_ray.multimatch.overlap import make_overlap
from repair_ray.multimatch.products import GALLERY, OVERLAP
from repair_ray.run import Run
from repair_ray.stages.graph import quiet
from repair_ray.tables import multimatch as benchmark_tables
from tests.multimatch.conftest import commit, settings

CENTRE = Expert("one", None, None)  # type: ignore[arg-type]
# name, split, pixels, perceptual hash
PICTURES = [
    ("t-same", "train", "p1", "00000000000000ff"),
    ("t-near", "train", "p2", "000000000000000f"),
    ("t-far", "train", "p3", "ffff000000000000"),
    ("=t-flat", "train", "p4", None),
    ("t-not-in-gallery", "train", "p8", "0f0f0f0f0f0f0f0f"),
    ("g-1", "test", "p1", "00000000000000fe"),
    ("g-2", "test", "p6", "000000000000001f"),
    ("g-3", "test", "p7", None),
    ("left-out", "test", "p8", "0f0f0f0f0f0f0f0f"),
]


def made(folder: Path, split: str | None = "train") -> Run:
    config = parse_config(settings(folder, overlap={"split": split, "cosine": None}))
    run = Run(folder / "run")
    rows = [
        {
            "image_id": f"id {name}",
            "group_id": name,
            "split": part,
            "name": name,
            "pixel_hash": pixels,
            "perceptual_hash": near,
            "source": f"file:{n}",
            "status": tables.OK,
        }
        for n, (name, part, pixels, near) in enumerate(PICTURES)
    ]
    commit(run, "data/images", tables.IMAGES, rows)
    chosen = [{"image_id": f"id g-{n}", "status": tables.OK} for n in (1, 2, 3)]
    left = {"image_id": "id left-out", "status": tables.REJECTED}
    commit(run, GALLERY, benchmark_tables.GALLERY, [*chosen, left])
    make_overlap(run, config, CENTRE, quiet)
    return run


def test_by_hand(tmp_path: Path) -> None:
    run = made(tmp_path)
    found = {(row["item_id"], row["way"]): (row["other_id"], row["distance"]) for row in run.read(OVERLAP).to_pylist()}
    assert found == {
        ("id t-same", "pixels"): ("id g-1", 0.0),
        ("id t-same", "perceptual"): ("id g-1", 1.0),
        ("id t-near", "perceptual"): ("id g-2", 1.0),
    }
    facts = (run.manifest(OVERLAP) or {})["overlap"]
    assert facts["ways"] == {"pixels": 1, "perceptual": 2}
    assert (facts["trained"], facts["dropped"], facts["kept"], facts["gallery_with_duplicates"]) == (5, 2, 3, 2)
    with (run.path(OVERLAP) / "kept.csv").open(encoding="utf-8", newline="") as file:
        kept = list(csv.DictReader(file))
    # For programs: names as they are.
    assert [row["name"] for row in kept] == ["t-far", "=t-flat", "t-not-in-gallery"]
    assert kept[0] == {"image_id": "id t-far", "name": "t-far", "source": "file:2"}


def test_nothing_to_compare_with(tmp_path: Path) -> None:
    (tmp_path / "none").mkdir()
    assert made(tmp_path / "none", None).manifest(OVERLAP) is None
    assert made(tmp_path / "empty", "validation").manifest(OVERLAP) is None
