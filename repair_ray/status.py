"""What a run has done and does now, read from its directory alone: no Ray, and nothing is written.

So it works on every machine that sees the storage, while the run works and after it was killed.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from repair_ray.config import ConfigError, parse_config
from repair_ray.observing.figures import FIGURES, stage_facts
from repair_ray.observing.heartbeat import FILE as HEARTBEAT
from repair_ray.observing.heartbeat import STALE_SECONDS, Beat, read_beat
from repair_ray.observing.rate import seconds_left
from repair_ray.planning import stages_of
from repair_ray.run import MANIFEST, Run, RunError, find_files, read_json
from repair_ray.tables.files import StatusCounts

CONFIG, TEXT_CONFIG = "config.json", "text.json"
# Ended: its process came to its end, and there is no summary: such as a benchmark that waits for its labels.
State = Literal["running", "finished", "stopped", "silent", "ended", "unknown"]


def status_of(folder: Path, now: float | None = None) -> dict[str, Any]:
    """A run's state as plain values.

    `state` is running, finished, stopped (its process said why), silent (it said nothing for 30 s: killed, or its
    machine lost the storage), ended, or unknown (no heartbeat). `products` come in the order in which they were
    finished, then those in progress, then those that the config still asks for and that are made by actors. An ETA is
    of one product, in seconds, and only while the run works.

    Args:
        now: seconds since 1970; None: this machine's clock.

    Raises:
        RunError: no run there, or a file of it that cannot be read; names the file.
    """
    if not any((folder / name).is_file() for name in (CONFIG, TEXT_CONFIG, HEARTBEAT)):
        raise RunError(f"there is no run at {folder}: name the folder that holds its {CONFIG}, such as runs/demo")
    run, beat = Run(folder), read_beat(folder)
    now = time.time() if now is None else now
    state = _state(folder, beat, now)
    finished = _finished(run)
    begun = list(_begun(run, working=state == "running"))
    known = {product["name"] for product in finished + begun}
    missing = [_product(name, "missing", total=rows) for name, rows in _planned(folder) if name not in known]
    return {
        "run": folder.absolute().name,
        "folder": str(folder.absolute()),
        "state": state,
        "heartbeat": None if beat is None else {**asdict(beat), "age_seconds": round(now - beat.beat, 1)},
        "products": [*finished, *begun, *missing],
    }


def _state(folder: Path, beat: Beat | None, now: float) -> State:
    done = (folder / "summary.json").is_file()
    if beat is None:
        return "finished" if done else "unknown"
    if beat.ended is None:
        return "running" if now - beat.beat <= STALE_SECONDS else "silent"
    if beat.error is not None:
        return "stopped"
    return "finished" if done else "ended"


def _finished(run: Run) -> list[dict[str, Any]]:
    found = []
    for path in find_files(run.folder, MANIFEST):
        manifest = _read(path)
        if manifest is None:
            continue  # removed in this moment
        try:
            product = _product(
                path.parent.relative_to(run.folder).as_posix(),
                "finished",
                done=manifest.get("rows"),
                total=manifest.get("rows"),
                seconds=float(manifest["seconds"]),
                statuses=manifest.get("statuses", {}),
                reasons=manifest.get("reasons", {}),
                figures=manifest.get(FIGURES, []),
            )
            found.append((float(manifest["finished"]), product))
        except (KeyError, TypeError, ValueError) as error:
            raise RunError(f"{path} is no manifest of this version ({type(error).__name__}: {error})") from None
    return [product for _, product in sorted(found, key=lambda item: item[0])]


def _begun(run: Run, working: bool) -> Iterator[dict[str, Any]]:
    for path in find_files(run.folder, "begun.json"):
        begun = _read(path)
        if begun is None:
            continue  # finished in this moment
        half = path.parent / "half-made"
        counts = _counts(half / "rows")
        done, total, rate = begun.get("steps", begun.get("done", counts.rows)), begun.get("total"), begun.get("rate")
        yield _product(
            path.parent.relative_to(run.folder).as_posix(),
            "in progress" if working else "half-made",
            unit="steps" if "steps" in begun else "rows",
            done=done,
            total=total,
            seconds=float(begun.get("seconds", 0.0)),
            rate=rate if working else None,
            eta=seconds_left(done, total, rate) if working else None,
            statuses=counts.statuses,
            reasons=counts.reasons,
            figures=stage_facts(half / FIGURES) or stage_facts(path.parent / FIGURES),
        )


def _product(
    name: str,
    state: str,
    *,
    unit: str = "rows",
    done: int | None = None,
    total: int | None = None,
    seconds: float | None = None,
    rate: float | None = None,
    eta: float | None = None,
    statuses: dict[str, int] | None = None,
    reasons: dict[str, int] | None = None,
    figures: list[dict[str, Any]] | None = None,
) -> dict[str, Any]:
    return {
        "name": name,
        "state": state,
        "unit": unit,
        "done": done,
        "total": total,
        "seconds": seconds,
        "rate": rate,
        "eta_seconds": eta,
        "statuses": statuses or {},
        "reasons": reasons or {},
        "figures": figures or [],
    }


def _counts(rows: Path) -> StatusCounts:
    """Rows of a half-made table by status and reason; files that are still being written are left out."""
    counts = StatusCounts()
    for part in sorted(rows.glob("*.parquet")):
        try:
            there = pq.read_schema(part).names
            counts.add(pq.read_table(part, columns=[name for name in ("status", "reason") if name in there]))
        except (OSError, pa.ArrowInvalid):
            continue
    return counts


def _planned(folder: Path) -> list[tuple[str, int | None]]:
    """The products that a run's actors make, in their order, with their rows where those are known."""
    tree = _read(folder / CONFIG)
    if tree is None or tree.get("multimatch") is not None:
        return []  # of text runs and benchmarks, all is made in one go after what is in progress
    try:
        config = parse_config(tree, source=str(folder / CONFIG))
    except ConfigError:
        return []  # of an older version, whose products are told all the same
    # The folder may have another path on this machine.
    here = folder.absolute()
    config = config.model_copy(update={"output": str(here.parent), "name": here.name})
    return [(stage.name, stage.rows) for stage in stages_of(config, [])]


def _read(path: Path) -> dict[str, Any] | None:
    try:
        record = read_json(path)
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise RunError(f"{path} cannot be read as JSON ({error}): the disk was full, or it was changed") from None
    if record is not None and not isinstance(record, dict):
        raise RunError(f"{path} holds no object: it was changed")
    return record
