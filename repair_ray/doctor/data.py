"""The data: are the paths there, can the first rows be read, does the first picture decode?"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from PIL import Image

from repair_ray.config import Config, DataConfig
from repair_ray.data.access import image_store
from repair_ray.data.images import ImageProblem
from repair_ray.data.records import DataError, Problem, Record
from repair_ray.report.findings import Finding
from repair_ray.stages.sources import items_of, sources_of

ROWS = 16
# Of one path that holds every split, or whose rows are bad: where the rest is, a run finds out.
LOOKED_AT = 5_000


@dataclass
class FirstRows:
    """The first usable rows of each split, and the first problem that a row had."""

    records: dict[str, list[Record]] = field(default_factory=dict)
    problem: Problem | None = None
    problems: int = 0


def rows_needed(config: Config) -> int:
    """Rows of each split that a trial takes: each training worker needs one of its own."""
    return max(ROWS, config.training.workers, config.base.workers if config.base else 0)


def check_data(config: Config, rows: int = ROWS) -> tuple[list[Finding], FirstRows]:
    """Findings about the data, and the rows that were read: at most `rows` of each split.

    A world is drawn by the run itself: nothing is read then.
    """
    first = FirstRows()
    if config.data.world is not None:
        return [Finding("data", "ok", "a world that the run draws itself")], first
    try:
        sources = sources_of(config.data, Path())
        if config.data.path is not None:
            _read(first, config.data, sources, rows)
        else:
            for split, path in sources.items():
                _read(first, config.data, {split: path}, rows)
    except DataError as error:
        return [Finding("data", "failed", str(error), "correct the data section")], first
    except OSError as error:
        fact = f"{error.strerror or error}: {error.filename or ''}"
        return [Finding("data", "failed", fact, "make it readable for the user that runs this")], first
    return _judged(config, first), first


def _read(first: FirstRows, data: DataConfig, sources: dict[str, str], rows: int) -> None:
    wanted = set(sources)
    for split, item in islice(items_of(data, sources), LOOKED_AT):
        if isinstance(item, Problem):
            first.problem = first.problem or item
            first.problems += 1
            continue
        found = first.records.setdefault(split, [])
        if len(found) < rows:
            found.append(item)
        if all(len(first.records.get(name, ())) >= rows for name in wanted):
            return


def _judged(config: Config, first: FirstRows) -> list[Finding]:
    counts = ", ".join(f"{split} {len(found)}" for split, found in sorted(first.records.items()))
    found = []
    needed = dict.fromkeys(("train", config.mining.split, config.evaluation.split))
    missing = [split for split in needed if not first.records.get(split)]
    if missing:
        fact = f"no row of {' or '.join(missing)} among those looked at; first rows read: {counts or 'none'}"
        advice = "name a path for each split, or data.split_column"
        # One path may hold a split further on.
        further = config.data.path is not None and sum(map(len, first.records.values())) + first.problems
        found.append(Finding("data", "warning" if further else "failed", fact, advice))
    else:
        found.append(Finding("data", "ok", f"first rows read: {counts}"))
    if first.problem is not None:
        problem = first.problem
        fact = f"{first.problems} unusable rows among the first; {problem.source}: {problem.reason}: {problem.detail}"
        found.append(Finding("data", "warning", fact, "such rows are left out of the run, with their reasons"))
    return [*found, *_pictures(config.data, first)]


def _pictures(data: DataConfig, first: FirstRows) -> list[Finding]:
    """The first picture of each split, decoded as the stages do."""
    shown = []
    for split, records in sorted(first.records.items()):
        for record in records[:1]:
            try:
                image = picture(data, record)
            except ImageProblem as problem:
                advice = "mend the file, or see whether most of them are so: too many stop the run"
                return [Finding("first picture", "failed", f"{split}, {record.source}: {problem}", advice)]
            shown.append(f"{split} {image.width}x{image.height}")
    return [Finding("first picture", "ok", "decodes: " + ", ".join(shown))] if shown else []


def picture(data: DataConfig, record: Record) -> Image.Image:
    """The upright RGB picture of a record. Raises `ImageProblem`."""
    return image_store("/", data).picture(record.image)
