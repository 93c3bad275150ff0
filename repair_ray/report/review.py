"""The tables of `repair-ray review --stats`: precision by criterion, agreement, disagreements."""

from __future__ import annotations

from typing import Any

from rich.table import Table

from repair_ray.report.plain import safe_text, titled
from repair_ray.report.results import DIRECTIONS, NOTHING, count

SHOWN = 20
UNDEFINED = "undefined"


def stats_tables(facts: dict[str, Any]) -> list[Table]:
    """What `repair_review.stats.stats_of` found."""
    made = [_annotators(facts), _precision(facts)]
    if any(facts["agreement"].values()):
        made.append(_agreement(facts["agreement"]))
    if facts["disagreements"]:
        made.append(_disagreements(facts["disagreements"]))
    return made


def _annotators(facts: dict[str, Any]) -> Table:
    rounds = ", ".join(map(str, facts["rounds"]))
    title = f"Reviewed: {count(facts['reviewed'])} of {count(facts['items'])} edits, round {rounds}"
    table = _table(title, "annotator", "edits", "in full", "answers")
    for name, own in facts["annotators"].items():
        table.add_row(safe_text(name), *(count(own[what]) for what in ("reviewed", "in_full", "answers")))
    if facts["of_other_edits"]:
        table.caption = f"{count(facts['of_other_edits'])} further reviews are of edits that are not in the sample now."
    return table


def _precision(facts: dict[str, Any]) -> Table:
    criteria = list(facts["total"])
    table = _table("Precision, % of the decided", "", *criteria)
    parts = [("all", facts["total"])]
    parts += [(DIRECTIONS[direction], found) for direction, found in facts["direction"].items()]
    parts += [(kind, found) for kind, found in facts["error_type"].items()]
    for name, found in parts:
        table.add_row(safe_text(name), *(_share(found[criterion]) for criterion in criteria))
    table.caption = (
        "Of the edits that more than half of their annotators decide, the share of yes, and its 95 % Wilson interval; "
        "what is open is left out and counted. An edit of several error types counts under each."
    )
    return table


def _share(found: dict[str, Any]) -> str:
    precision, left = found["precision"], f"\n{found['unsure']} open" if found["unsure"] else ""
    if precision["percent"] is None:
        return f"{NOTHING}{left}"
    low, high = precision["interval"]
    return f"{precision['percent']:.1f} of {precision['of']}\n[{low:.1f}, {high:.1f}]{left}"


def _agreement(found: dict[str, list[dict[str, Any]]]) -> Table:
    table = _table("Between annotators", "", "criterion", "edits", "equal, %", "kappa", "kappa,\nboth decided")
    for criterion, pairs in found.items():
        for pair in pairs:
            table.add_row(
                safe_text(f"{pair['first']}, {pair['second']}"),
                criterion,
                count(pair["n"]),
                NOTHING if pair["equal"]["percent"] is None else f"{pair['equal']['percent']:.1f}",
                *(UNDEFINED if pair[name] is None else f"{pair[name]:.2f}" for name in ("kappa", "kappa_decided")),
            )
    table.caption = "Cohen's kappa, of each two annotators over the edits that both answered."
    return table


def _disagreements(found: list[dict[str, Any]]) -> Table:
    table = _table("Disagreements", "edit", "round", "criterion", "answers")
    for one in found[:SHOWN]:
        said = ", ".join(f"{name} {answer}" for name, answer in one["said"].items())
        table.add_row(f"{one['number']} ({one['direction']})", str(one["round"]), one["criterion"], safe_text(said))
    if len(found) > SHOWN:
        table.caption = f"And {len(found) - SHOWN} more: --json lists them all."
    return table


def _table(title: str, first: str, *others: str) -> Table:
    table = titled(title)
    table.caption_justify = "left"
    table.add_column(first, overflow="fold", min_width=12)
    for name in others:
        table.add_column(name, justify="right", vertical="top")
    return table
