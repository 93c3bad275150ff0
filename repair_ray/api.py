"""What the command line does, as functions: each is named as its command, and returns what the command shows.

    import repair_ray
    from repair_ray import api

    config = repair_ray.Config.load("my.yaml", "training.lr=5e-6")
    summary = api.run(config)

Errors that a person can mend are `ConfigError`, `RunError`, `DataError` and `RetrieverError`, with a message for them.
Nothing is printed. Ray and torch are imported by the functions that need them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from repair_ray.config import Config, parse_config
from repair_ray.run import Run, RunError, read_json

if TYPE_CHECKING:
    from repair_ray.report.findings import Finding

__all__ = [
    "compare",
    "doctor",
    "evaluate",
    "export_model",
    "export_pairs",
    "plan",
    "report",
    "rollback",
    "run",
    "search",
    "status",
]


def run(
    config: Config, *, redo: Sequence[str] = (), progress: Callable[[str, int, int], None] | None = None
) -> dict[str, Any]:
    """Repair a retriever, or go on where it stopped (`repair-ray run`); returns what `summary.json` holds.

    The report is written too. Ray is started on this machine, unless `RAY_ADDRESS` names a cluster or it runs already.

    Args:
        redo: stages to make again, with all that hangs on them.
        progress: called with a product's name, rows or steps done, and how many there are.

    Raises:
        RunError, DataError, RetrieverError: with a message for the person who started it.
    """
    from repair_ray.report.html import write_report
    from repair_ray.rounds import run_config
    from repair_ray.stages.graph import quiet

    summary = run_config(config, redo=list(redo), progress=progress or quiet)
    write_report(Run(config.run_dir), summary, config.data)
    return summary


def doctor(config: Config, *, trial: bool = True) -> list[Finding]:
    """Look at all that a run needs, before it runs (`repair-ray doctor`); `trial`: take a few rows through it."""
    from repair_ray.doctor import examine

    return examine(config, trial=trial)


def plan(config: Config) -> dict[str, Any]:
    """What each stage of a run takes of the cluster, and whether it fits (`repair-ray plan --json`)."""
    from repair_ray.doctor.cluster import connect
    from repair_ray.planning import plan as planned
    from repair_ray.scheduling.cluster import nodes_of

    connect()
    return planned(config, nodes_of(config.cluster)).as_json()


def status(run_dir: str | Path) -> dict[str, Any]:
    """What a run has done and does now (`repair-ray status --json`), from its files alone.

    Raises:
        RunError: there is no run, or a file of it cannot be read.
    """
    from repair_ray.status import status_of

    return status_of(Path(run_dir))


def report(run_dir: str | Path) -> Path:
    """Write `report.html` of a finished run again (`repair-ray report`); returns its path.

    Raises:
        RunError: no finished run is there.
    """
    from repair_ray.report.html import write_report

    summary = read_json(Path(run_dir) / "summary.json")
    if summary is None:
        raise RunError(f"there is no finished run at {run_dir}: no summary.json")
    return write_report(Run(run_dir), summary, parse_config(summary["config"]).data)


def search(run_dir: str | Path, query: str, *, k: int = 5, split: str | None = None) -> dict[str, Any]:
    """The `k` best of a text or of a picture's path, before and after repair (`repair-ray search`).

    Raises:
        RunError: there is no run, or its retriever was not trained yet.
    """
    from repair_ray.measuring.search import search as find

    return find(str(run_dir), query, k=k, split=split)


def rollback(run_dir: str | Path, number: int) -> tuple[list[str], Path]:
    """Take a run back to the end of a round (`repair-ray rollback`).

    Returns the products that were moved, and the folder where they lie now. Raises `RunError` where nothing is to be
    moved, or there is no such round.
    """
    from repair_ray.rounds.rollback import roll_back

    return roll_back(Run(run_dir), number)


def evaluate(
    target: str | Path,
    data: str | Path | None = None,
    *,
    which: Literal["base", "repaired", "both"] = "both",
    pretrained: str | None = None,
    precision: Literal["fp32", "bf16", "fp16"] | None = None,
    split: str | None = None,
    settings: Sequence[str] = (),
    protocol: Literal["full", "flickr30k-1k", "coco-5k", "coco-1k"] = "full",
    positives: Literal["own", "known"] | None = None,
    seed: int = 0,
) -> dict[str, Any]:
    """R@1, R@5, R@10 and MRR over the full ranking (`repair-ray evaluate retrieval`).

    Args:
        target: a run's folder, or an open_clip model with `pretrained`.
        data: as `data.path`, or a run's folder; the run's own where unset. `settings`: `key=value` of a data section.

    Raises:
        RunError, DataError, RetrieverError: what is named is not there, or cannot be measured.
    """
    from repair_ray.measuring.retrieval import retrieval
    from repair_ray.measuring.retrievers import is_run, retrievers_of, run_of
    from repair_ray.measuring.sources import source_of

    name = str(target)
    own = run_of(name) if is_run(name) else None
    source = source_of(None if data is None else str(data), own, split, list(settings), None)
    found = retrievers_of(name, which, pretrained, precision)
    return retrieval(found, source, protocol=protocol, positives=positives, seed=seed)


def compare(runs: Sequence[str | Path], *, resamples: int = 2000, seed: int = 0) -> dict[str, Any]:
    """What each run gains over the first on the same queries (`repair-ray evaluate compare`).

    Raises:
        RunError: a run has no metrics, or other queries than the first.
    """
    from repair_ray.measuring.comparison import compare_runs

    return compare_runs([str(run) for run in runs], resamples=resamples, seed=seed)


def export_pairs(
    run_dir: str | Path,
    out: str | Path,
    format: str,
    *,
    number: int | None = None,
    overwrite: bool = False,
    shard_mb: int = 256,
) -> dict[str, Any]:
    """The accepted edits as pairs with hard negatives (`repair-ray export pairs`); `number`: of this round alone.

    Raises:
        RunError: there is nothing to export, no such format, or `out` is taken.
    """
    from repair_ray.export.dataset import export_pairs as export

    run, config, folder = _exported(run_dir, out, overwrite)
    return export(run, config, folder, format, round_=number, overwrite=overwrite, shard_mb=shard_mb)


def export_model(
    run_dir: str | Path,
    out: str | Path,
    format: str = "open_clip",
    *,
    which: Literal["base", "repaired"] = "repaired",
    number: int | None = None,
    overwrite: bool = False,
) -> dict[str, Any]:
    """The retriever before or after repair, with all that loads it (`repair-ray export model`).

    Raises:
        RunError: there is no such retriever or format, the format cannot hold its architecture, or `out` is taken.
    """
    from repair_ray.export.model import export_model as export

    run, config, folder = _exported(run_dir, out, overwrite)
    return export(run, config, folder, format, which=which, round_=number, overwrite=overwrite)


def _exported(run_dir: str | Path, out: str | Path, overwrite: bool) -> tuple[Run, Config, Path]:
    from repair_ray.export.folder import check_out
    from repair_ray.judging import run_config_of

    run = Run(run_dir)
    config = run_config_of(run)
    check_out(Path(out), overwrite)
    return run, config, Path(out)
