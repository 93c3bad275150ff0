"""The tables of `repair-ray evaluate`: judge against people, judge against itself, and the blind reader."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rich.table import Table

from repair_ray.report.plain import safe_text, titled
from repair_ray.report.results import DIRECTIONS, NOTHING, count, points

PARTS = {"total": "both", **DIRECTIONS}
UNDEFINED = "undefined"
INTERVALS = "In brackets: 95 % Wilson intervals. Kappa is undefined where all falls into one class."
CHANCE = 50.0


def label_tables(facts: dict[str, Any]) -> list[Table]:
    """What `audit_against_labels` found; parts without a failure are left out."""
    made = [_labels(facts), _measures(facts), _confusion(facts["total"]["confusion"], "Judge (rows), people (columns)")]
    if facts["confidence"]:
        made.append(_confidence(facts["confidence"]))
    if facts["between_annotators"]:
        made.append(_annotators(facts["between_annotators"]))
    return made


def consistency_tables(facts: dict[str, Any]) -> list[Table]:
    """What `consistency` found, where somebody was asked."""
    table = _by_part(
        f"{facts['verdicts']} against the same questions in the other order",
        facts,
        {
            "failures": lambda found: count(found["n"]),
            "equal": lambda found: _share(found["equal"]),
            "kappa": lambda found: _kappa(found["kappa"]),
            "kappa, valid or not": lambda found: _kappa(found["kappa_valid"]),
            "valid, then not": lambda found: _share(found["from_valid"]),
            "not valid, then valid": lambda found: _share(found["to_valid"]),
        },
    )
    table.caption = (
        f"{facts['no_answer']} of {facts['n']} had no answer in the other order and are left out. {INTERVALS}"
    )
    return [table, _confusion(facts["total"]["confusion"], "First order (rows), other order (columns)")]


def blind_tables(facts: dict[str, Any]) -> list[Table]:
    """What `blind` found."""
    table = titled("Edited caption or source? Told from the text alone")
    _columns(table, "measure", "value")
    for name, value in (
        ("pairs (edited, source)", count(facts["pairs"])),
        ("accuracy over pairs, chance is 50 %", _share(facts["accuracy"])),
        ("AUC over texts, chance is 0.5", f"{facts['auc']:.3f}"),
        ("words that an edit adds, mean", f"{facts['more_words']:+.2f}"),
        ("equal scores, decided by a coin", count(facts["ties"])),
        ("pairs trained on in a fold, mean", count(facts["trained_on"])),
    ):
        table.add_row(name, value)
    apart = facts["accuracy"]["interval"][0] > CHANCE
    table.caption = (
        "The text alone gives edits away: a retriever can learn that in place of the picture."
        if apart
        else "No trace of editing was found: what follows is what chance offers."
    )
    return [table, *(_telling(facts["telling"][side], side) for side in ("edited", "source") if facts["telling"][side])]


def _labels(facts: dict[str, Any]) -> Table:
    table = titled(f"Labels for {facts['verdicts']}")
    _columns(table, "", "failures")
    for annotator, number in facts["annotators"].items():
        table.add_row(safe_text(f"labelled by {annotator}"), count(number))
    unmatched = facts["unmatched"]
    examples = f", such as {', '.join(unmatched['such_as'])}" if unmatched["n"] else ""
    for name, value in (
        ("labelled by anybody", facts["labelled"]),
        ("joined with a verdict", facts["joined"]),
        (f"without a verdict in this run{examples}", unmatched["n"]),
        ("left out: annotators disagree", facts["disputed"]),
        ("measured", facts["total"]["n"]),
        ("rows without a label", facts["unlabelled_rows"]),
    ):
        table.add_row(safe_text(name), count(value))
    return table


def _measures(facts: dict[str, Any]) -> Table:
    table = _by_part(
        "The judge by people's labels",
        facts,
        {
            "failures": lambda found: count(found["n"]),
            "precision of valid": lambda found: _share(found["precision"]),
            "recall of valid": lambda found: _share(found["recall"]),
            "equal": lambda found: _share(found["agreement"]["equal"]),
            "kappa": lambda found: _kappa(found["agreement"]["kappa"]),
            "kappa, valid or not": lambda found: _kappa(found["agreement"]["kappa_valid"]),
            "judge unsure": lambda found: count(found["abstained"]),
            "judge without a verdict": lambda found: count(found["no_verdict"]),
            "people unsure": lambda found: count(found["people_unsure"]),
        },
    )
    table.caption = f"Unsure, or without a verdict, counts as not valid. {INTERVALS}"
    return table


def _confidence(bins: list[dict[str, Any]]) -> Table:
    table = titled("By the judge's confidence")
    _columns(table, "confidence", "failures", "equal", "precision\nof valid")
    for found in bins:
        between = f"{found['low']:.1f}–{found['high']:.1f}"
        table.add_row(between, count(found["n"]), _share(found["equal"]), _share(found["precision"]))
    return table


def _annotators(pairs: list[dict[str, Any]]) -> Table:
    table = titled("Between annotators")
    _columns(table, "annotators", "failures", "equal", "kappa", "kappa,\nvalid or not")
    for found in pairs:
        names = safe_text(f"{found['first']}, {found['second']}")
        kappas = (_kappa(found[name]) for name in ("kappa", "kappa_valid"))
        table.add_row(names, count(found["n"]), _share(found["equal"]), *kappas)
    return table


def _confusion(found: dict[str, dict[str, int]], title: str) -> Table:
    table = titled(title)
    _columns(table, "", *(name.replace("_", "\n") for name in next(iter(found.values()))))
    for name, row in found.items():
        table.add_row(name.replace("_", " "), *(count(number) for number in row.values()))
    return table


def _telling(grams: list[dict[str, Any]], side: str) -> Table:
    table = titled(f"What gives the {side} caption away, strongest first")
    _columns(table, "n-gram", "of", "weight", "pairs that have it\nmore often here", "more often\nin the other")
    for gram in grams:
        shown = safe_text(f"'{gram['text']}'")
        kind = "words" if gram["kind"] == "word" else "characters"
        table.add_row(shown, kind, f"{gram['weight']:+.2f}", count(gram["pairs"]), count(gram["pairs_other"]))
    table.caption = "⟨ and ⟩ are the ends of a caption." if any(set("⟨⟩") & set(g["text"]) for g in grams) else None
    return table


def _by_part(title: str, facts: dict[str, Any], measures: dict[str, Callable[[dict[str, Any]], str]]) -> Table:
    """A line a measure, a column for both directions together and for each that has a failure."""
    parts = [part for part in PARTS if measures["failures"](facts[part]) != "0"]
    table = titled(title)
    _columns(table, "", *(PARTS[part] for part in parts))
    for name, value in measures.items():
        table.add_row(name, *(value(facts[part]) for part in parts))
    return table


def _columns(table: Table, first: str, *others: str) -> None:
    table.caption_justify = "left"
    table.add_column(first, overflow="fold")
    for name in others:
        table.add_column(name, justify="right", no_wrap=True)


def _share(found: dict[str, Any]) -> str:
    """`92.3 % of 120`, and its interval below."""
    if found["percent"] is None:
        return f"{NOTHING} of 0"
    low, high = found["interval"]
    return f"{points(found['percent'])} % of {count(found['of'])}\n({low:.1f}–{high:.1f})"


def _kappa(value: float | None) -> str:
    return UNDEFINED if value is None else f"{value:.2f}"
