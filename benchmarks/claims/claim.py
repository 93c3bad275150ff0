"""A table of claims: what was measured by seed, how it differs from a reference, and what the paper says."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import isfinite
from typing import Any, Literal

import numpy as np

from repair_ray.evaluation.statistics import mean_interval

Sign = Literal["+", "-", "<="]


@dataclass
class Row:
    """One variant: its figures by measure, one for each seed.

    NaN stands for a figure that it does not have. `paper` is what the paper says of it, in words; `expected` the sign
    of the reference minus this row there: `<=` where this row is at least no worse than the reference.
    """

    name: str
    scores: dict[str, list[float]]
    paper: str = ""
    expected: Sign | None = None


@dataclass
class Claim:
    """Rows against a reference row, which is one of them; `measure` is what differences are taken of."""

    name: str
    title: str
    reference: str
    measure: str
    rows: list[Row]
    note: str = ""
    facts: dict[str, Any] = field(default_factory=dict)

    def result(self) -> dict[str, Any]:
        """As plain values, with means, differences and verdicts."""
        reference = next(row for row in self.rows if row.name == self.reference)
        return {
            "name": self.name,
            "title": self.title,
            "reference": self.reference,
            "measure": self.measure,
            "seeds": len(reference.scores[self.measure]),
            "rows": [self._row(row, reference) for row in self.rows],
            "note": self.note,
            **self.facts,
        }

    def _row(self, row: Row, reference: Row) -> dict[str, Any]:
        made: dict[str, Any] = {
            "name": row.name,
            "scores": {name: [_finite(value) for value in values] for name, values in row.scores.items()},
            "mean": {name: _finite(round(float(np.mean(values)), 2)) for name, values in row.scores.items()},
        }
        if row is reference:
            return made
        pairs = zip(reference.scores[self.measure], row.scores[self.measure], strict=True)
        differences = [ours - theirs for ours, theirs in pairs]
        mean, low, high = mean_interval(differences)
        made["reference_minus"] = [round(value, 2) if isfinite(value) else None for value in (mean, low, high)]
        made["effect"] = effect(differences)
        made["paper"] = row.paper
        made["reproduced"] = verdict(mean, low, high, row.expected) if row.expected else None
        return made


def _finite(value: float) -> float | None:
    """A figure that a row does not have is NaN, which JSON does not know."""
    return value if isfinite(value) else None


def effect(differences: list[float]) -> float | None:
    """Cohen's d of paired differences: their mean over their deviation; None for one seed, or without deviation."""
    if len(differences) < 2 or np.ptp(differences) == 0:
        return None
    return round(float(np.mean(differences) / np.std(differences, ddof=1)), 2)


def verdict(mean: float, low: float, high: float, expected: Sign) -> str:
    """Whether the paper's sign came out: in the mean, and whether the 95 % interval is on that side of 0 as a whole."""
    if expected == "<=":
        return "yes" if mean <= 0 else "no, interval covers 0" if low <= 0 else "no"
    same = mean > 0 if expected == "+" else mean < 0
    sure = (low > 0 or high < 0) and isfinite(low)
    if same:
        return "yes" if sure else "yes, interval covers 0"
    return "no" if sure else "no, interval covers 0"


def markdown(result: dict[str, Any]) -> str:
    """The table for a README."""
    measures = list(result["rows"][0]["scores"])
    against = result["reference"].replace("_", " ")
    head = ["", *measures, f"{against} minus, {result['measure']}", "effect", "paper", "sign reproduced"]
    lines = [
        f"{result['title']} Mean of {result['seeds']} seeds; in brackets the 95 % t interval over seeds.",
        "",
        "| " + " | ".join(head) + " |",
        "|---" * len(head) + "|",
        *("| " + " | ".join(cells(row, measures)) + " |" for row in result["rows"]),
    ]
    return "\n".join([*lines, *(["", result["note"]] if result["note"] else [])]) + "\n"


def cells(row: dict[str, Any], measures: list[str]) -> list[str]:
    """One row as text."""
    means = [f"{row['mean'][name]:,.1f}" if row["mean"][name] is not None else "" for name in measures]
    if "reference_minus" not in row:
        return [row["name"].replace("_", " "), *means, "", "", "", ""]
    size = "" if row["effect"] is None else f"{row['effect']:.1f}"
    verdicts = [row["paper"], row["reproduced"] or ""]
    return [row["name"].replace("_", " "), *means, difference(*row["reference_minus"]), size, *verdicts]


def difference(mean: float, low: float | None, high: float | None) -> str:
    """`+1.2 [+0.3, +2.1]`; without bounds where there are none."""
    return f"{mean:+.1f}" if low is None or high is None else f"{mean:+.1f} [{low:+.1f}, {high:+.1f}]"
