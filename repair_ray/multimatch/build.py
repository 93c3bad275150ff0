"""The main job: one line a product, each of which is made or found ready."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from repair_ray.config import Config, parse_config
from repair_ray.multimatch.candidates import make_pairs
from repair_ray.multimatch.experts import embed_gallery, experts_of
from repair_ray.multimatch.gallery import make_gallery
from repair_ray.multimatch.matches import make_benchmark, make_matches
from repair_ray.multimatch.overlap import make_overlap
from repair_ray.multimatch.people import settle_people
from repair_ray.multimatch.products import GALLERY, LABELS, PAIRS, section_of
from repair_ray.multimatch.queries import make_queries
from repair_ray.multimatch.stats import write_stats
from repair_ray.multimatch.verify import GROUPS, LANGUAGE, verify_by_groups, verify_by_language
from repair_ray.observing.heartbeat import Heartbeat
from repair_ray.run import Run, RunError, read_json, write_json
from repair_ray.stages.data import WORLD, make_data
from repair_ray.stages.graph import Progress, quiet, start_ray
from repair_ray.stages.sources import sources_of

CONFIG = "config.json"
WAITING = "no pair is labelled yet: people do so by `multimatch review`, or by sheets of `multimatch verify`"


@dataclass(frozen=True)
class Built:
    """What was built: the figures, where they lie, and the benchmark's folder; or why it waits."""

    stats: dict[str, Any] | None = None
    stats_file: Path | None = None
    folder: Path | None = None
    waiting: str | None = None


def build(config: Config, *, redo: Sequence[str] = (), progress: Progress = quiet) -> Built:
    """Build the benchmark of a config, or go on with it.

    Raises:
        RunError, DataError, RetrieverError: with a message for the person who started it.
    """
    chosen = section_of(config)
    # Pictures that are trained on too are what the overlap audit lists: they stop nothing here.
    data = config.data.model_copy(update={"overlap": "allow"})
    config = config.model_copy(update={"data": data})
    run = Run(config.run_dir)
    with run.locked(), Heartbeat(run.folder):
        # What is not there is told before Ray starts.
        sources_of(config.data, run.path(WORLD))
        experts = experts_of(chosen.experts)
        for stage in redo:
            run.redo(stage)
        start_ray()
        # A run that is refused for changed settings keeps the config that its tables were made with.
        if not (run.folder / CONFIG).exists():
            write_json(run.folder / CONFIG, config.model_dump(mode="json"))
        centre = next(expert for expert in experts if expert.name == chosen.centre.name)
        make_data(run, config, progress, (chosen.split,))
        make_queries(run, config, progress)
        make_gallery(run, config, centre, progress)
        for expert in experts:
            embed_gallery(run, config, expert, chosen.split, progress)
        make_pairs(run, config, experts)
        make_overlap(run, config, centre, progress)
        if LANGUAGE in chosen.verify.by:
            verify_by_language(run, config, progress)
        if GROUPS in chosen.verify.by:
            verify_by_groups(run, config)
        write_json(run.folder / CONFIG, config.model_dump(mode="json"))
        return _label(run, config)


def label_again(target: Path) -> Built:
    """Take in what people have said since, and make the labels and the benchmark's files anew.

    Raises:
        RunError: there is no run, or it is not built as far as its labels.
    """
    run, config = run_of(target)
    with run.locked():
        for product in (GALLERY, PAIRS):
            if run.manifest(product) is None:
                raise RunError(f"{product} does not exist yet in {run.folder}: run multimatch build first")
        return _label(run, config)


def _label(run: Run, config: Config) -> Built:
    machines = [f"{LABELS}/{name}" for name in (LANGUAGE, GROUPS) if name in section_of(config).verify.by]
    missing = next((product for product in machines if run.manifest(product) is None), None)
    if missing is not None:
        raise RunError(f"{missing} does not exist yet in {run.folder}: run multimatch build first")
    people = settle_people(run)
    if not machines and not people:
        return Built(waiting=WAITING)
    make_matches(run, config, machines, sorted(people.values()))
    folder = make_benchmark(run, config)
    stats, path = write_stats(run, config)
    return Built(stats, path, folder)


def run_of(target: Path) -> tuple[Run, Config]:
    """The run at a path and its config. Raises `RunError` where there is none, or none of a benchmark."""
    tree = read_json(target / CONFIG)
    if tree is None:
        raise RunError(f"there is no run at {target}")
    config = parse_config(tree, source=str(target / CONFIG))
    section_of(config)
    return Run(target), config
