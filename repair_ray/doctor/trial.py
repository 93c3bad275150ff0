"""A trial: a few rows through every stage of a run, in a folder of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from repair_ray import tables
from repair_ray.config import Config
from repair_ray.doctor.data import FirstRows
from repair_ray.doctor.text import LONGEST, one_line
from repair_ray.doctor.trial_config import trial_config
from repair_ray.report.findings import Finding
from repair_ray.report.results import duration
from repair_ray.rounds import run_config
from repair_ray.run import IMAGES, Run, find_files
from repair_ray.stages.products import ROUND

REASONS = 3
FAILURES, VERDICTS, EDITS = f"{ROUND}/failures", f"{ROUND}/verdicts", f"{ROUND}/edits"


def check_trial(config: Config, first: FirstRows, folder: Path, tell: Callable[[str], None]) -> list[Finding]:
    """Run a few rows through every stage; one finding for each product.

    A stage that stops the run fails, and training is then tried without edits.

    Args:
        first: what `check_data` read. folder: where the trial may write; its owner removes it.
    """
    made = trial_config(config, first, folder)
    run = Run(made.run_dir)
    stopped = _attempt(made, tell)
    found = judge_products(run)
    if stopped is None:
        return found
    found += judge_stop(run, stopped)
    if run.manifest(f"{ROUND}/embeddings") is None or run.path(f"{ROUND}/training").exists():
        return [*found, Finding("trial", "skipped", "the stages that follow were not reached")]
    # Training hangs on no model that audits or edits, so it can be tried in any case.
    done, half = frozenset(name for name, _ in run.products()), frozenset(half_made(run))
    stopped = _attempt(made.model_copy(update={"strategy": "vanilla"}), tell)
    found += judge_products(run, without=done)
    # Without a half-made table it was a finished one that stopped the first attempt; that has been told too.
    return found + (judge_stop(run, stopped, before=half | {EDITS}) if stopped else [])


def _attempt(config: Config, tell: Callable[[str], None]) -> str | None:
    """Run a config, or go on with it; the reason where it stops."""
    try:
        run_config(config, progress=lambda name, done, total: tell(f"trial: {name}"))
    except Exception as error:
        # Whatever it is, it would have stopped the run.
        return one_line(error)
    return None


def judge_products(run: Run, without: frozenset[str] = frozenset()) -> list[Finding]:
    """One finding for each finished product but those of these names.

    A row that a stage rejects shows that the stage works. A row with an error fails, with two exceptions that a run
    goes on with: single pictures that cannot be read, and single answers of a model that cannot be used.
    """
    unusable = _unusable_answers(run)
    return [_judged(run, name, manifest, unusable) for name, manifest in run.products() if name not in without]


def judge_stop(run: Run, reason: str, before: frozenset[str] = frozenset()) -> list[Finding]:
    """What stopped a run: the product that was being made, or that a finished table leaves nothing to go on with.

    Args:
        before: half-made products of an earlier attempt, whose stop has been told.
    """
    half = [name for name in half_made(run) if name not in before]
    verdicts = run.manifest(VERDICTS) or run.manifest(f"{ROUND}/random_verdicts")
    if half == [EDITS] and verdicts is not None and set(verdicts["statuses"]) == {tables.ERROR}:
        return [Finding(f"trial: {EDITS}", "skipped", "the stage before it left no row")]
    if half:
        advice = "mend the cause; the log of the Ray session holds more"
        return [Finding(f"trial: {name}", "failed", reason, advice) for name in half]
    if not before and _none_left(run.manifest(FAILURES)):
        return [Finding(f"trial: {EDITS}", "skipped", "so few rows show no failure to repair")]
    if not before and _none_left(run.manifest(EDITS)):
        # Its own finding says why each row was rejected.
        return [Finding("trial", "warning", "no row was edited, so training is tried without edits")]
    return [Finding("trial", "failed", reason, "mend the cause")]


def _judged(run: Run, name: str, manifest: dict[str, Any], unusable: set[str]) -> Finding:
    statuses = manifest.get("statuses") or {}
    fact = duration(manifest["seconds"])
    counted = ", ".join(_counted(run, name, status, number) for status, number in statuses.items())
    fact += f"; {counted}" if counted else ""
    bad = statuses.get(tables.ERROR, 0)
    if not bad:
        return Finding(f"trial: {name}", "ok", fact)
    if name == IMAGES and statuses.get(tables.OK, 0) >= bad:
        return Finding(f"trial: {name}", "warning", fact, "such pictures are left out of the run")
    if set(_reasons(run, name, tables.ERROR)) <= unusable:
        advice = "not every answer of this model can be used: another model, or a higher max_tokens, may do better"
        return Finding(f"trial: {name}", "warning", fact, advice)
    return Finding(f"trial: {name}", "failed", fact, "mend the cause: in a run, such rows are lost")


def _unusable_answers(run: Run) -> set[str]:
    """Why answers of a model cannot be used, where it also gave some that can: the way to it is not at fault."""
    found: set[str] = set()
    for name, manifest in run.products():
        if manifest.get("table") == tables.ANSWERS.name and manifest["statuses"].get(tables.OK):
            rows = run.read(name, ["status", "reason", "answer"]).to_pylist()
            found |= {row["reason"] for row in rows if row["status"] == tables.ERROR and row["answer"]}
    return found


def _counted(run: Run, name: str, status: str, number: int) -> str:
    """`2 rejected (benign_match)`: rows of a status with its most frequent reasons."""
    reasons = "; ".join(one_line(reason, LONGEST // REASONS) for reason in _reasons(run, name, status)[:REASONS])
    return f"{number} {status.replace('_', ' ')}" + (f" ({reasons})" if reasons else "")


def _reasons(run: Run, name: str, status: str) -> list[str]:
    """The reasons of the rows of a status, the most frequent first."""
    table = run.read(name, ["status", "reason"])
    counts = table.filter(pc.equal(table["status"], status))["reason"].value_counts().to_pylist()
    return [item["values"] for item in sorted(counts, key=lambda item: -item["counts"]) if item["values"]]


def _none_left(manifest: dict[str, Any] | None) -> bool:
    """Whether a finished table has no usable row."""
    return manifest is not None and tables.OK not in manifest["statuses"]


def half_made(run: Run) -> list[str]:
    """Products that were begun and not finished."""
    return [path.parent.relative_to(run.folder).as_posix() for path in find_files(run.folder, "begun.json")]
