"""Tables of text towers: how they rank scored pairs of sentences, and what closes a text-only run."""

from __future__ import annotations

from typing import Any

from rich.table import Table

from repair_ray.report.plain import safe_text, titled
from repair_ray.report.results import NOTHING, between, count, duration, points

WORDS = "words in common"
SPLITS = ("validation", "test")


def sts_tables(facts: dict[str, Any]) -> list[Table]:
    """What `measuring.sts.sts` found."""
    protocol = facts["protocol"]
    table = _scores("Sentence similarity")
    for label, found in facts["retrievers"].items():
        _add(table, label, found["metrics"])
    _add(table, WORDS, facts["shared_words"])
    models = sorted({f"{found['model']} in {found['precision']}" for found in facts["retrievers"].values()})
    cut = max(found["truncated"] for found in facts["retrievers"].values())
    parts = [
        f"{count(protocol['pairs'])} pairs; 95 % bootstrap intervals over pairs; {protocol['ties']}.",
        _unused(protocol["unused"]),
        f"{count(cut)} texts are longer than the context and were cut." if cut else "",
        f"Model: {', '.join(models)}.",
    ]
    made = [table]
    subsets = next(iter(facts["retrievers"].values()))["subsets"]
    if subsets:
        view = titled("By subset")
        view.add_column("subset")
        for label in facts["retrievers"]:
            view.add_column(safe_text(label).plain, justify="right")
        view.add_column("pairs", justify="right")
        for name, part in subsets.items():
            values = [found["subsets"][name]["spearman"] for found in facts["retrievers"].values()]
            view.add_row(safe_text(name), *(_value(value) for value in values), count(part["n"]))
        made.append(view)
    made[-1].caption = safe_text(" ".join(part for part in parts if part))
    made[-1].caption_justify = "left"
    return made


def text_run_tables(summary: dict[str, Any]) -> list[Table]:
    """What closes a text-only run; `summary` is what its `summary.json` holds."""
    made = []
    for split in SPLITS:
        found = summary["metrics"].get(split)
        if found is None:
            continue
        table = _scores(f"Sentence similarity on {split}")
        for label, result in found.items():
            _add(table, label, result["metrics"])
        made.append(table)
    rows = titled("Data")
    for name in ("table", "rows", "used", "not used"):
        rows.add_column(name, justify="left" if name == "table" else "right")
    for name, part in summary["data"].items():
        used = part["statuses"].get("ok", 0)
        bad = ", ".join(f"{count(n)} {reason.replace('_', ' ')}" for reason, n in part["reasons"].items()) or NOTHING
        rows.add_row(safe_text(name), count(part["rows"]), count(used), safe_text(bad))
    training = summary["training"]
    rows.caption = safe_text(
        f"{count(training['steps'])} steps in {duration(training['seconds'])}; the best checkpoint is that of step "
        f"{count(training['best_step'])}."
    )
    rows.caption_justify = "left"
    return [*made, rows]


def _scores(title: str) -> Table:
    table = titled(title)
    table.add_column("")
    for name in ("Spearman\nx 100", "95 %\ninterval", "pairs"):
        table.add_column(name, justify="right", no_wrap=True, vertical="bottom")
    return table


def _add(table: Table, label: str, metrics: dict[str, Any]) -> None:
    bounds = metrics["spearman_ci"]
    interval = between((bounds[0], bounds[1])) if bounds else NOTHING
    table.add_row(safe_text(label), _value(metrics["spearman"]), interval, count(metrics["n"]))


def _value(value: float | None) -> str:
    return NOTHING if value is None else points(value)


def _unused(unused: dict[str, Any]) -> str:
    if not unused["n"]:
        return ""
    counts = ", ".join(f"{count(n)} {reason.replace('_', ' ')}" for reason, n in unused["reasons"].items())
    return f"{count(unused['n'])} rows could not be used: {counts} (such as {', '.join(unused['such_as'])})."
