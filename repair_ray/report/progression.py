"""How R@1 grows round by round, and with the pairs that a retriever was repaired with."""

from __future__ import annotations

from typing import Any

from repair_ray.report import results
from repair_ray.report.charts import Point, Span, curves
from repair_ray.report.pictures import Row


def round_curve(summary: dict[str, Any]) -> Row | None:
    """R@1 of the base (round 0) and of every round: `svg`, and a line a round; None where no round was measured."""
    found = results.systems(summary)
    base, _ = results.outcome(found)
    rounds = _rounds(found, summary)
    if not rounds:
        return None
    numbered = [*([(0, base)] if base else []), *rounds]
    points: dict[str, list[Point]] = {}
    spans: dict[str, list[Span]] = {}
    for number, system in numbered:
        for direction, label in results.DIRECTIONS.items():
            value, bounds = system.value(direction), system.interval(direction)
            if value is not None:
                points.setdefault(label, []).append((number, value))
            if bounds is not None:
                spans.setdefault(label, []).append((number, *bounds))
    svg = curves(points, "R@1 in percent by round, with 95 % intervals", unit="round", spans=spans, dots=True)
    return {"svg": svg, "lines": [_line(number, system, numbered, summary) for number, system in numbered]}


def _rounds(found: list[results.System], summary: dict[str, Any]) -> list[tuple[int, results.System]]:
    """The rounds that were measured, those that were rolled back too, with their numbers."""
    # Rounds that were not measured have no system.
    numbers = [n for n, made in enumerate(summary.get("rounds") or [], start=1) if made.get("metrics")]
    return list(zip(numbers, (s for s in found if s.role in ("round", "rolled back")), strict=True))


def _line(
    number: int, system: results.System, numbered: list[tuple[int, results.System]], summary: dict[str, Any]
) -> Row:
    before = next((other for n, other in reversed(numbered) if n < number), None)
    made = summary["rounds"][number - 1] if number else {}
    name = f"round {number}" if number else "base"
    return {
        "name": f"{name}, rolled back" if system.role == "rolled back" else name,
        "values": [(system.value(d), results.difference(system, before, d)) for d in results.DIRECTIONS],
        "failures": _both(made.get("failures")),
        "accepted": _both((made.get("edits") or {}).get("accepted")),
    }


def _both(counts: dict[str, int] | None) -> int | None:
    return sum(counts.values()) if counts else None


def budget_curve(summary: dict[str, Any]) -> Row | None:
    """R@1 by the number of corrected pairs that were trained on: `svg`, `lines` (name, pairs, R@1 by direction).

    From none (the base) over variants that differ from the round in `mining.budget` alone to the rounds; None where
    no number of pairs is known but that of the base.
    """
    found = results.systems(summary)
    base, _ = results.outcome(found)
    controls = {system.label: system for system in found if system.role == "control"}
    measured: list[tuple[str, int, results.System]] = [("base", 0, base)] if base else []
    variants = (summary.get("config") or {}).get("variants") or {}
    for name, control in (summary.get("controls") or {}).items():
        changed = variants.get(name) or {}
        system = controls.get(results.control_label(name))
        only_budget = list(changed) == ["mining"] and list(changed["mining"]) == ["budget"]
        if only_budget and system and control.get("corrected") is not None:
            measured.append((system.label, control["corrected"], system))
    accepted = 0
    for number, system in _rounds(found, summary):
        made = summary["rounds"][number - 1]
        accepted += _both((made.get("edits") or {}).get("accepted")) or 0
        corrected = made.get("corrected")
        measured.append((system.label, accepted if corrected is None else corrected, system))
    measured.sort(key=lambda item: item[1])
    if len({pairs for _, pairs, _ in measured}) < 2:
        return None
    points: dict[str, list[Point]] = {}
    for direction, label in results.DIRECTIONS.items():
        values = [(pairs, system.value(direction)) for _, pairs, system in measured]
        points[label] = [(pairs, value) for pairs, value in values if value is not None]
    lines = [
        {"name": name, "pairs": pairs, "values": [system.value(d) for d in results.DIRECTIONS]}
        for name, pairs, system in measured
    ]
    return {"svg": curves(points, "R@1 in percent by corrected pairs", unit="pairs", dots=True), "lines": lines}
