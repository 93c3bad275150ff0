"""The data of a run: the demo's world is drawn, sources are read, and what is there twice is listed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from repair_ray.config import Config, WorldConfig
from repair_ray.run import CAPTIONS, IMAGES, Run, RunError, read_json, write_json
from repair_ray.stages.duplicates import find_duplicates
from repair_ray.stages.graph import Progress, quiet
from repair_ray.stages.ingest import ingest
from repair_ray.stages.sources import source_digest, sources_of
from repair_ray.world.generate import make_world

WORLD = "data/world"


def make_data(run: Run, config: Config, progress: Progress = quiet, needed: tuple[str, ...] | None = None) -> None:
    """Make the `images`, `captions` and `duplicates` tables of a config's data section.

    Args:
        needed: splits that must have a row; None: those that a round of repair needs.

    Raises:
        DataError: as reading. RunError: as `ingest`, or a world that cannot be drawn.
    """
    data, world = config.data, config.data.world
    folder = run.path(WORLD)
    if world is not None:
        _draw_world(folder, world)
    sources = sources_of(data, folder)
    apart = {"shard_mb", "near_cosine", "pool"} | (set() if data.near_same else {"near_bits"})
    settings: dict[str, Any] = {"data": data.model_dump(mode="json", exclude=apart)}
    if world is None:
        settings["files"] = {split: source_digest(path) for split, path in sources.items()}
    ingest(run, config, settings, sources, progress, needed)
    find_duplicates(run, config, IMAGES, CAPTIONS)


def _draw_world(folder: Path, world: WorldConfig) -> None:
    """The world's files, drawn anew when they are of other settings (`--redo images`)."""
    settings = world.model_dump(mode="json")
    if read_json(folder / "world.json") == settings:
        return
    try:
        make_world(folder, world.train, world.validation, world.test, world.seed, world.distractors)
    except ValueError as error:
        raise RunError(f"data.world: {error}") from None
    write_json(folder / "world.json", settings)
