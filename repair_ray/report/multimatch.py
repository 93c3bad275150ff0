"""The tables of `repair-ray multimatch`: what a benchmark holds, and what is known of its gaps."""

from __future__ import annotations

from typing import Any

from rich.table import Table

from repair_ray.report.plain import safe_text, titled
from repair_ray.report.results import NOTHING, count

PARTS = {"all": "all queries", "with_teachers": "not held out", "held_out": "held out"}
UNDEFINED = "undefined"


def stats_tables(facts: dict[str, Any]) -> list[Table]:
    """What `multimatch.stats.stats_of` found."""
    made = [_sizes(facts), _matches(facts["matches"]), _experts(facts["experts"]), _completeness(facts)]
    if facts["agreement"]:
        made.append(_agreement(facts["agreement"]))
    if facts["overlap"]:
        made.append(_overlap(facts["overlap"]))
    if "truth" in facts:
        made.append(_truth(facts["truth"]))
    if facts["notes"]:
        made[-1].caption = safe_text(" ".join(f"{note[0].upper()}{note[1:]}." for note in facts["notes"]))
    return made


def _sizes(facts: dict[str, Any]) -> Table:
    queries, gallery, candidates = facts["queries"], facts["gallery"], facts["candidates"]
    table = _table(f"Benchmark {facts['name']}", "", "number")
    sources = ", ".join(f"{number} {source}" for source, number in sorted(queries["sources"].items()))
    sampled = f"of {count(gallery['of'])}" + (f", {gallery['clusters']} clusters" if gallery["clusters"] else "")
    for name, value in (
        (f"queries, of {count(queries['wanted'])} asked for ({sources})", queries["n"]),
        ("without any match", queries["without_match"]),
        ("held out from teachers", queries["held_out"]),
        (f"pictures of the gallery, {sampled}", gallery["n"]),
        ("pairs that experts proposed", candidates["proposed"]),
        (f"pairs sampled of {count(candidates['outside'])} outside", candidates["sampled"]),
        ("labelled yes", facts["labels"].get("yes", 0)),
        ("labelled no", facts["labels"].get("no", 0)),
        *((f"undecided: {reason}", number) for reason, number in sorted(facts["undecided"].items())),
    ):
        table.add_row(safe_text(name), count(value))
    return table


def _matches(found: dict[str, Any]) -> Table:
    table = _table("Matches of a query", "", *found["queries_by_matches"])
    table.add_row("queries", *(count(number) for number in found["queries_by_matches"].values()))
    low, half, high = found["quartiles"]
    table.caption = f"mean {found['mean']:.1f}, quartiles {low:g}, {half:g}, {high:g}, at most {found['max']}"
    return table


def _experts(found: list[dict[str, Any]]) -> Table:
    table = _table("Experts", "", "candidates", "matches", "candidates of\nno other", "matches of\nno other")
    for expert in found:
        names = ("candidates", "matches", "unique_candidates", "unique_matches")
        label = f"{expert['name']} (teacher)" if expert["teacher"] else expert["name"]
        table.add_row(safe_text(label), *(count(expert[name]) for name in names))
    return table


def _completeness(facts: dict[str, Any]) -> Table:
    found = facts["completeness"]
    table = _table(
        "Completeness: recall of the experts' union", "", "matches\ninside", "sampled\noutside", "of them\nmatches",
        "missed,\nestimated", "recall, %", "95 %\ninterval",
    )  # fmt: skip
    for part, label in PARTS.items():
        own = found.get(part)
        if own is None:
            continue
        missed = NOTHING if own["missed"] is None else f"{own['missed']:.0f}"
        recall = NOTHING if own["recall"] is None else f"{own['recall']:.1f}"
        interval = NOTHING if own["interval"] is None else "{:.1f}–{:.1f}".format(*own["interval"])
        sampled = f"{count(own['sampled'])} of\n{count(own['outside_pairs'])}"
        table.add_row(
            label, count(own["inside_matches"]), sampled, count(own["sampled_matches"]), missed, recall, interval
        )
    if found["not_labelled"]:
        table.caption = f"No estimate yet: {count(found['not_labelled'])} pairs are not labelled."
    else:
        table.caption = (
            "Exact hypergeometric interval from a simple random sample of all outside pairs; a match is what the "
            "verifiers call one."
        )
    return table


def _agreement(found: list[dict[str, Any]]) -> Table:
    table = _table("Between verifiers", "", "pairs", "equal, %", "kappa", "kappa,\nboth decided")
    for pair in found:
        table.add_row(
            safe_text(f"{pair['first']}, {pair['second']}"),
            count(pair["n"]),
            NOTHING if pair["equal"]["percent"] is None else f"{pair['equal']['percent']:.1f}",
            *(UNDEFINED if pair[name] is None else f"{pair[name]:.2f}" for name in ("kappa", "kappa_decided")),
        )
    return table


def _overlap(found: dict[str, Any]) -> Table:
    table = _table(f"Pictures of split {found['split']} that are near the gallery's", "", "pictures")
    for way, number in sorted(found["ways"].items()):
        table.add_row(safe_text(f"by {way}"), count(number))
    table.add_row("left out of the training list", count(found["dropped"]))
    table.add_row("kept in it", count(found["kept"]))
    table.add_row("pictures of the gallery that have one", count(found["gallery_with_duplicates"]))
    if found["nearest_cosine"]:
        spread = ", ".join(f"{float(q):.0%} {value:.3f}" for q, value in found["nearest_cosine"].items())
        table.caption = f"Cosine to the nearest of the gallery, quantiles: {spread}"
    return table


def _truth(found: dict[str, Any]) -> Table:
    table = _table("By the world's truth, in percent", "", "value")
    for name, label in (
        ("precision", "precision of the matches"),
        ("recall", "recall among labelled pairs"),
        ("union_recall", "true recall of the experts' union"),
    ):
        percent = found[name]["percent"]
        table.add_row(label, NOTHING if percent is None else f"{percent:.1f}")
    interval = found["estimate"]["interval"]
    if interval is not None:
        table.add_row("its interval, from the same sample", f"{interval[0]:.1f}–{interval[1]:.1f}")
    return table


def _table(title: str, first: str, *others: str) -> Table:
    table = titled(title)
    table.caption_justify = "left"
    table.add_column(first, overflow="fold", min_width=12)
    for name in others:
        table.add_column(name, justify="right", no_wrap=True, vertical="bottom")
    return table
