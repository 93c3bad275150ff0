"""Everything the HTML report shows, as plain values: from the summary, and examples from the run's tables."""

from __future__ import annotations

from typing import Any

import pyarrow.compute as pc
import yaml

from repair_ray import tables
from repair_ray.config import DataConfig
from repair_ray.report import results
from repair_ray.report.answers import BASE, read_answers, repaired_metrics
from repair_ray.report.changes import change_tables, changed_examples
from repair_ray.report.charts import bars, curves
from repair_ray.report.costs import costs, timeline
from repair_ray.report.explorer import search_data
from repair_ray.report.grids import connectivity, repair_grids
from repair_ray.report.pictures import DataRows, Pictures, Row, having, sides
from repair_ray.report.pools import pool_rows
from repair_ray.report.progression import budget_curve, round_curve
from repair_ray.run import CAPTIONS, IMAGES, Run

FAILURE_EXAMPLES = 4


def collect(run: Run, summary: dict[str, Any], data: DataConfig) -> dict[str, Any]:
    """The template's values. Parts that the summary or the run directory lacks are None or empty."""
    rounds = summary.get("rounds") or []
    shown = _shown(run, summary, data, len(rounds))
    return {
        "name": summary.get("name", run.folder.name),
        "strategy": summary.get("strategy"),
        "seed": summary.get("seed"),
        "evaluation": summary.get("evaluation") or {},
        "protocol": results.protocol_text(summary.get("evaluation") or {}),
        **_comparison(summary),
        "changes": change_tables(summary),
        "examples": shown.get("examples", []),
        "explorer": shown.get("explorer"),
        "result": summary.get("result") or {},
        "round_curve": round_curve(summary),
        "budget_curve": budget_curve(summary),
        "rounds": [_round(made, number) for number, made in enumerate(rounds, start=1)],
        "failures": shown.get("failures", {}),
        "grids": shown.get("grids", []),
        "connectivity": shown.get("connectivity"),
        "placement": ((summary.get("config") or {}).get("objective") or {}).get("placement", "local"),
        "stages": timeline(summary),
        "costs": costs(summary),
        "pools": pool_rows(run),
        "models": results.model_use(summary),
        "calls_per_pair": (summary.get("language") or {}).get("calls_per_pair"),
        "bad_rows": results.bad_rows(summary),
        "duplicates": summary.get("duplicates") or [],
        "recall": results.recall_text(summary),
        "training": [_training(name, record) for name, record in (summary.get("training") or {}).items()],
        "versions": summary.get("versions") or {},
        "config": _yaml(summary.get("config")),
    }


def _comparison(summary: dict[str, Any]) -> dict[str, Any]:
    found = results.systems(summary)
    base, final = results.outcome(found)
    return {
        "systems": found,
        "headline": [_headline(d, found) for d in results.DIRECTIONS if final and final.value(d) is not None],
        "metrics": [_metrics(d, found) for d in results.DIRECTIONS if any(s.metrics.get(d) for s in found)],
        "final": final,
        "base": base,
    }


def _headline(direction: str, found: list[results.System]) -> Row:
    base, final = results.outcome(found)
    assert final is not None
    versus = []
    for control in (system for system in found if system.role == "control"):
        gain = results.difference(final, control, direction)
        if gain is not None:
            cost = final.items / control.items if final.items and control.items else None
            versus.append(
                {"label": control.label, "gain": gain, "cost": cost, "apart": _apart(final, control, direction)}
            )
    return {
        "direction": results.DIRECTIONS[direction],
        "before": base.value(direction) if base else None,
        "before_interval": base.interval(direction) if base else None,
        "after": final.value(direction),
        "after_interval": final.interval(direction),
        "gain": results.difference(final, base, direction),
        "versus": versus,
    }


def _apart(one: results.System, other: results.System, direction: str) -> bool | None:
    """Whether both 95 % intervals of R@1 are disjoint; None where one is not known."""
    first, second = one.interval(direction), other.interval(direction)
    if first is None or second is None:
        return None
    return first[0] > second[1] or second[0] > first[1]


def _metrics(direction: str, found: list[results.System]) -> Row:
    base, _ = results.outcome(found)
    lines = []
    for system in (system for system in found if system.metrics.get(direction)):
        lines.append(
            {
                "label": system.label,
                "role": system.role,
                "values": {name: system.value(direction, name) for name in results.METRICS},
                "interval": system.interval(direction),
                "gain": None if system is base else results.difference(system, base, direction),
                "items": system.items,
                "n": system.metrics[direction].get("n"),
            }
        )
    return {"direction": results.DIRECTIONS[direction], "lines": lines}


def _round(made: dict[str, Any], number: int) -> Row:
    edits = made.get("edits") or {}
    return {
        "number": number,
        "failures": [(results.DIRECTIONS.get(d, d), n) for d, n in (made.get("failures") or {}).items()],
        "verdicts": bars({judgement.replace("_", " "): n for judgement, n in (made.get("verdicts") or {}).items()}),
        "error_types": [
            {"direction": results.DIRECTIONS.get(d, d), "bars": bars(types)}
            for d, types in (made.get("error_types") or {}).items()
            if types
        ],
        "accepted": [(results.DIRECTIONS.get(d, d), n) for d, n in (edits.get("accepted") or {}).items()],
        "rejected": bars(
            {
                **(edits.get("rejected") or {}),
                **{f"refused in review: {criterion}": n for criterion, n in (edits.get("refused") or {}).items()},
            }
        ),
        "truth": list(results.truth_measures(made)),
    }


def _training(name: str, record: dict[str, Any]) -> Row:
    series: dict[str, list[tuple[float, float]]] = {}
    for entry in record.get("history") or []:
        for key, value in entry.items():
            if key != "step" and isinstance(value, int | float):
                series.setdefault(key, []).append((float(entry["step"]), float(value)))
    validation = {key: series.pop(key) for key in list(series) if key.startswith("validation")}
    best = record.get("best_step")
    charts = [
        {"title": title, "svg": curves(lines, f"{name}, {title}", mark=best)}
        for title, lines in (("loss", series), ("validation", validation))
    ]
    return {
        "name": name,
        "steps": record.get("steps"),
        "best_step": best,
        "items": record.get("items_encoded"),
        "charts": [chart for chart in charts if chart["svg"]],
    }


def _yaml(config: dict[str, Any] | None) -> str:
    return yaml.safe_dump(config, sort_keys=False, allow_unicode=True, default_flow_style=None) if config else ""


def _shown(run: Run, summary: dict[str, Any], data: DataConfig, rounds: int) -> dict[str, Any]:
    """Examples of the last round that has them, from the tables; nothing where the tables are gone."""
    if run.manifest(IMAGES) is None or run.manifest(CAPTIONS) is None:
        return {}
    rows, pictures = DataRows(run), Pictures(run, data)
    shown: dict[str, Any] = {}
    repaired = repaired_metrics(summary)
    before, after = (read_answers(run, name) if name else None for name in (BASE, repaired))
    if before and after:
        shown["examples"] = changed_examples(before, after, rows, pictures, summary.get("seed") or 0)
        shown["explorer"] = search_data(before, after, rows, pictures)
    for number in range(rounds, 0, -1):
        edits = f"round-{number}/edits"
        made_from = run.made_from(edits)
        failures, verdicts = (made_from.get(name, f"round-{number}/{name}") for name in ("failures", "verdicts"))
        if run.manifest(failures) is None:
            continue
        judged = verdicts if run.manifest(verdicts) is not None else None
        shown.setdefault(
            "failures", {d: _failures(run, failures, judged, d, rows, pictures) for d in results.DIRECTIONS}
        )
        if run.manifest(edits) is not None:
            split = ((summary.get("config") or {}).get("mining") or {}).get("split")
            shown["grids"] = repair_grids(run, edits, failures, rows, pictures)
            shown["connectivity"] = connectivity(run, edits, rows, split)
            break
    return shown


def _failures(
    run: Run, failures: str, verdicts: str | None, direction: str, data: DataRows, pictures: Pictures
) -> list[Row]:
    """The clearest failures of a direction: the wrong item that lies furthest above the ground truth, one a query."""
    table = run.read(failures)
    table = table.filter(pc.and_(pc.equal(table["status"], tables.OK), pc.equal(table["direction"], direction)))
    margin = pc.subtract(table["score"], table["ground_truth_score"])
    order = [("margin", "descending"), ("failure_id", "ascending")]
    chosen: dict[str, Row] = {}
    # A query has a handful of failures, so this many rows hold enough different ones.
    for row in table.append_column("margin", margin).sort_by(order).slice(0, 100 * FAILURE_EXAMPLES).to_pylist():
        if len(chosen) < FAILURE_EXAMPLES:
            chosen.setdefault(row["query_id"], row)
    judged = {}
    if verdicts is not None:
        found = having(
            run.read(verdicts, ["failure_id", "judgement"]), "failure_id", [r["failure_id"] for r in chosen.values()]
        )
        judged = {row["failure_id"]: row["judgement"] for row in found.to_pylist()}
    return [_failure(row, judged.get(row["failure_id"]), data, pictures) for row in chosen.values()]


def _failure(row: Row, judgement: str | None, data: DataRows, pictures: Pictures) -> Row:
    roles = {"query": row["query_id"], "retrieved": row["candidate_id"], "right": row["ground_truth_id"]}
    scores = {name: row[name] for name in ("rank", "score", "ground_truth_score")}
    return {**sides(roles, data, pictures), **scores, "judgement": judgement}
