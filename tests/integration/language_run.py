"""A run with a handful of failures, and its audit by a model: `python language_run.py FOLDER JSON_OF_LANGUAGE`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from repair_ray.config import Config, parse_config
from repair_ray.engines.retriever import RetrieverSpec
from repair_ray.run import Run
from repair_ray.stages.audit import audit
from repair_ray.stages.embed import embed
from repair_ray.stages.graph import start_ray
from repair_ray.stages.ingest import ingest
from repair_ray.stages.mine import mine
from repair_ray.stages.sources import sources_of
from repair_ray.world.generate import make_world

SPEC = RetrieverSpec("tiny-64")
MISMATCH = {"type": "object", "query": "a", "candidate": "b"}
# A judge's usable answer.
VALID = json.dumps({"reason": "r", "mismatches": [MISMATCH], "judgement": "valid", "confidence": 0.8})


def config(language: dict[str, Any], budget: int = 4, **sections: Any) -> Config:
    return parse_config(
        {
            "data": {"world": {"train": 12, "validation": 2, "test": 2}},
            "retriever": {"model": "tiny-64"},
            "edit": {"image_editor": "scene", "candidates": 2},
            "mining": {"k": 4, "budget": budget},
            # What these models judge is noise: every failure goes on.
            "selection": {"audit": False, "min_gain": -1.0, "min_scaffold": -1.0},
            "language": language,
            **sections,
        }
    )


def prepare(folder: Path, made: Config) -> Run:
    """Mined failures of a random retriever, `mining.budget` in each direction."""
    run, world = Run(folder), made.data.world
    assert world is not None
    run.folder.mkdir(parents=True, exist_ok=True)
    make_world(run.path("data/world"), world.train, world.validation, world.test, world.seed, world.distractors)
    ingest(run, made, {}, sources_of(made.data, run.path("data/world")))
    embed(run, made, "embeddings", SPEC, ("train",), ())
    mine(run, made, "failures", "embeddings")
    return run


if __name__ == "__main__":
    settings = json.loads(sys.argv[2])
    start_ray()
    audit(Run(sys.argv[1]), config(**settings), "verdicts", "failures")
