"""`summary.json`: what a run did and measured, for programs. Read from the manifests and tables alone."""

from __future__ import annotations

import contextlib
import platform
from collections import Counter
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from repair_ray import tables
from repair_ray.config import Config
from repair_ray.evaluation.compare import QueryError, changes
from repair_ray.evaluation.truth import read_truth
from repair_ray.run import Run, read_json
from repair_ray.stages.evaluate import read_ranks

PACKAGES = ("repair_ray", "ray", "torch", "open_clip_torch", "faiss-cpu", "pyarrow")


def make_summary(run: Run, config: Config, place: str) -> dict[str, Any]:
    """Gather the summary of a finished run; `place` is its round."""
    base = run.manifest("base/metrics") or {}
    return {
        "name": config.name,
        "strategy": config.strategy,
        "seed": config.seed,
        "versions": _versions(),
        "config": config.model_dump(mode="json"),
        "evaluation": base.get("protocol", {}),
        "base": {"metrics": base.get("metrics", {})},
        "rounds": [_round(run, place)],
        "controls": {name: _control(run, name) for name in config.control_names},
        "changes": _changes(run, config, f"{place}/metrics"),
        "training": _training(run),
        "language": language_usage(run, config, place),
        "approximate_search": {
            name: manifest["search"]["recall"]
            for name, manifest in run.products()
            if "recall" in manifest.get("search", {})
        },
        "duplicates": [fact for _, manifest in run.products() for fact in manifest.get("duplicates", [])],
        "stages": [
            {
                "name": record.name,
                "seconds": round(record.seconds, 2),
                "started": record.started,
                "finished": record.finished,
                "rows": record.rows,
                "rows_per_second": round(record.rows_per_second, 1),
                "statuses": record.statuses,
                "reasons": record.reasons,
            }
            for record in run.records()
        ],
    }


def _round(run: Run, place: str) -> dict[str, Any]:
    made_from = run.made_from(f"{place}/edits")
    failures, verdicts = (_rows(run, made_from[name]) if made_from else [] for name in ("failures", "verdicts"))
    edits = _rows(run, f"{place}/edits")
    kinds = {direction: Counter[str]() for direction in ("i2t", "t2i")}
    for row in verdicts:
        if row["status"] == tables.OK:
            kinds[row["direction"]].update({mismatch["type"] for mismatch in row["mismatches"] or ()})
    return {
        "failures": _by_direction(row for row in failures if row["status"] == tables.OK),
        "verdicts": dict(Counter(row["judgement"] or tables.ERROR for row in verdicts)),
        "error_types": {direction: dict(found) for direction, found in kinds.items()},
        "edits": {
            "accepted": _by_direction(row for row in edits if row["status"] == tables.OK),
            "rejected": dict(Counter(row["reason"] for row in edits if row["status"] != tables.OK)),
            "candidates": _candidates(run, f"{place}/edits"),
        },
        "corrected": _corrected(run, place),
        "truth": read_truth(run, place),
        "metrics": (run.manifest(f"{place}/metrics") or {}).get("metrics", {}),
    }


def language_usage(run: Run, config: Config, place: str) -> dict[str, Any]:
    """What models were asked, by product: questions, calls, tokens, latency in seconds, cost; empty where none was.

    `calls_per_pair`: calls for the round over its accepted edits. Answers that an earlier stage or run had got count
    with what they took then.
    """
    used: dict[str, dict[str, Any]] = {}
    for name, manifest in run.products():
        if manifest.get("table") == tables.ANSWERS.name:
            table = run.read(name, ["calls", "input_tokens", "output_tokens", "seconds"])
            sums = {column: round(pc.sum(table[column]).as_py() or 0, 2) for column in table.column_names}
            own = config.audit.language if name.endswith("verdicts_answers") else config.edit.language
            language = own or config.language
            price = language.price
            cost = (sums["input_tokens"] * price.input + sums["output_tokens"] * price.output) / 1e6
            used[name] = {"model": language.model, "questions": len(table), **sums, "cost": round(cost, 4)}
    if not used:
        return {}
    edits = (run.manifest(f"{place}/edits") or {}).get("statuses", {}).get(tables.OK, 0)
    calls = sum(sums["calls"] for name, sums in used.items() if name.startswith(f"{place}/"))
    return {"products": used, "calls_per_pair": round(calls / edits, 2) if edits else None}


def _by_direction(rows: Any) -> dict[str, int]:
    found = Counter(row["direction"] for row in rows)
    return {direction: found[direction] for direction in ("i2t", "t2i")}


def _rows(run: Run, product: str) -> list[dict[str, Any]]:
    if run.manifest(product) is None:
        return []
    table: pa.Table = run.read(product)
    kept = [name for name in ("direction", "status", "reason", "judgement", "mismatches") if name in table.column_names]
    return list(table.select(kept).to_pylist())


def _candidates(run: Run, edits: str) -> dict[str, int]:
    """How many captions (`i2t`) and pictures (`t2i`) the editors made, rejected ones too."""
    if run.manifest(edits) is None:
        return {}
    table = run.read(edits, ["direction", "candidates"])
    made = pc.fill_null(pc.list_value_length(table["candidates"]), 0)
    return {d: pc.sum(made.filter(pc.equal(table["direction"], d))).as_py() or 0 for d in ("i2t", "t2i")}


def _corrected(run: Run, place: str) -> int | None:
    """How many corrected pairs a training took; None where it has not said."""
    return (run.manifest(f"{place}/training") or {}).get("corrected")


def _changes(run: Run, config: Config, repaired: str) -> dict[str, Any]:
    """Queries that the repaired retriever answers otherwise than the base and each control, by their names."""
    compared = {"base": "base/metrics", **{name: f"controls/{name}/metrics" for name in config.control_names}}
    ranked = {
        product for product, manifest in run.products() if manifest.get("table") == tables.RANKS.name
    }  # those of earlier versions kept no ranks
    found: dict[str, Any] = {}
    if repaired in ranked:
        after = read_ranks(run, repaired)
        for name, product in compared.items():
            if product in ranked:
                with contextlib.suppress(QueryError):  # too few queries to compare
                    found[name] = changes(read_ranks(run, product), after, (name, "the repaired retriever"))
    return found


def _control(run: Run, name: str) -> dict[str, Any]:
    training = (run.manifest(f"controls/{name}/training") or {}).get("training", {})
    metrics = (run.manifest(f"controls/{name}/metrics") or {}).get("metrics", {})
    corrected = _corrected(run, f"controls/{name}")
    return {"metrics": metrics, "items": training.get("items_encoded"), "corrected": corrected}


def _training(run: Run) -> dict[str, Any]:
    return {
        name: {**manifest["training"], "history": (read_json(run.path(name) / "history.json") or {}).get("history", [])}
        for name, manifest in run.products()
        if "training" in manifest
    }


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
