"""The tables of retrievers measured outside a run's job. Each says below itself what it was measured on."""

from __future__ import annotations

from typing import Any

from rich.table import Table

from repair_ray.report.plain import safe_text, titled
from repair_ray.report.results import DIRECTIONS, METRICS, NOTHING, between, count, points, protocol_text, signed

ALL = {**DIRECTIONS, "mean": "mean of both"}


def retrieval_tables(facts: dict[str, Any]) -> list[Table]:
    """What `measuring.retrieval.retrieval` found."""
    protocol = facts["protocol"]
    made = []
    for direction, title in DIRECTIONS.items():
        table = _table(f"{title} on {protocol['split']}, in percent", "retriever", "R@1", "95 %\ninterval", *_others())
        for label, found in facts["retrievers"].items():
            table.add_row(safe_text(label), *_metrics(found["metrics"][direction]))
        made.append(table)
    if "difference" in facts:
        first, second = facts["retrievers"]
        made.append(_gains(f"{second} minus {first}", facts["difference"]))
    if "fold" in protocol:
        note = f"Mean over {protocol['fold']}-image folds, in file order. {_said(facts)}"
    else:
        note = _said(facts)
    if not protocol["complete"]:
        missing = f"{count(protocol['images'])} of the {count(protocol['expected_images'])} pictures"
        note = f"Not the whole of {protocol['name']}: {missing} were there. {note}"
    return _noted(made, note)


def multimatch_tables(facts: dict[str, Any]) -> list[Table]:
    """What `measuring.retrieval.multimatch` found."""
    protocol = facts["protocol"]
    names = {f"map@{protocol['k']}": f"mAP@{protocol['k']}", "map@r": "mAP@R", "r_precision": "R-Prec"}
    names |= {f"r@{k}": f"R@{k}" for k in (1, 5, 10)}
    made = []
    for direction, title in DIRECTIONS.items():
        table = _table(
            f"{title} on {protocol['split']}, in percent", "retriever", *names.values(), "queries", "right\nanswers"
        )
        for label, found in facts["retrievers"].items():
            figures = found["metrics"][direction]
            right = figures["positives"]
            table.add_row(
                safe_text(label),
                *(points(figures[name]) for name in names),
                count(figures["n"]),
                f"{right['min']}–{right['max']}",
            )
        made.append(table)
    note = f"R@K: some right answer is within K. {_said(facts)}{_unmatched(protocol)}"
    skipped = max(found["metrics"][d]["skipped"] for found in facts["retrievers"].values() for d in DIRECTIONS)
    return _noted(made, f"{count(skipped)} queries without a right answer were skipped. {note}" if skipped else note)


def labelled_tables(facts: dict[str, Any]) -> list[Table]:
    """What `measuring.labelled.labelled` found."""
    protocol = facts["protocol"]
    name = f"map@{protocol['k']}"
    names = {"map@r": "mAP@R", "r_precision": "R-Prec", "r@1": "R@1", "r@5": "R@5"}
    found = facts["retrievers"]
    made = []
    titles = {"all": "all queries", "held_out": "queries held out from teachers"}
    for part in next(iter(found.values()))["metrics"]:
        table = _table(
            f"{safe_name(protocol['benchmark'])}, {titles[part]}, in percent",
            "retriever",
            f"mAP@{protocol['k']}",
            "95 %\ninterval",
            *names.values(),
            "queries",
        )
        for label, result in found.items():
            figures = result["metrics"][part]
            low, high = figures[f"{name}_ci"]
            table.add_row(
                safe_text(label),
                points(figures[name]),
                between((low, high)),
                *(points(figures[other]) for other in names),
                count(figures["n"]),
            )
        made.append(table)
    if "seeds" in facts:
        table = _table(f"mAP@{protocol['k']} over seeds", "retriever", "seeds", "mean", "deviation", "95 %\ninterval")
        for label, spread in facts["seeds"].items():
            low, high = spread["interval"]
            table.add_row(
                safe_text(label),
                str(len(spread["values"])),
                points(spread["mean"]),
                points(spread["deviation"]),
                between((low, high)),
            )
        made.append(table)
    return _noted(made, _labelled_note(facts))


def _labelled_note(facts: dict[str, Any]) -> str:
    protocol = facts["protocol"]
    metrics = next(iter(facts["retrievers"].values()))["metrics"]["all"]
    said = [
        f"{count(protocol['queries'])} queries, {count(protocol['pictures'])} pictures, "
        f"{count(protocol['matches'])} matches; {count(protocol['ignored'])} undecided pairs count neither way.",
        f"{count(metrics['skipped'])} queries without a match are left out." if metrics["skipped"] else "",
        f"Intervals: bootstrap over queries. Denominator of mAP: {protocol['map_denominator']}. "
        f"Ties: {protocol['ties']}.",
    ]
    if "difference" in facts:
        first, second = facts["retrievers"]
        gain = facts["difference"]
        low, high = gain["interval"]
        value = signed(gain[f"map@{protocol['k']}"])
        said.append(f"{second} minus {first}: {value} ({signed(low)} to {signed(high)}), paired.")
    whole = (protocol["completeness"] or {}).get("all")
    if whole and whole["interval"]:
        low, high = whole["interval"]
        said.append(f"Recall of the candidates that were labelled: {low:.1f} to {high:.1f} %.")
    return f"{' '.join(filter(None, said))} {_unused(protocol)}{_models(facts)}"


def sugarcrepe_tables(facts: dict[str, Any]) -> list[Table]:
    """What `measuring.benchmarks.sugarcrepe` found."""
    protocol, found = facts["protocol"], facts["retrievers"]
    table = _table("SugarCrepe, accuracy in percent", "sub-set", *map(safe_name, found), "scored", "listed")
    for name, part in protocol["subsets"].items():
        table.add_row(
            name.replace("_", " "),
            *(_share(result["results"]["subsets"][name]) for result in found.values()),
            count(part["scored"]),
            count(part["listed"]),
        )
    scored = next(iter(found.values()))["results"]["macro_of"]
    table.add_row(
        f"mean of {scored} sub-sets",
        *(points(result["results"]["macro"]) for result in found.values()),
        count(protocol["scored"]),
        count(protocol["listed"]),
    )
    absent = protocol["absent_files"]
    return _noted([table], (f"Files that are absent: {', '.join(absent)}. " if absent else "") + _compositional(facts))


def aro_tables(facts: dict[str, Any]) -> list[Table]:
    """What `measuring.benchmarks.aro` found."""
    found = {label: result["results"] for label, result in facts["retrievers"].items()}
    table = _table(f"{facts['protocol']['benchmark']}, accuracy in percent", "", *map(safe_name, found))
    table.add_row("all cases", *(_share(result["all"]) for result in found.values()))
    note = _compositional(facts)
    if "macro" in next(iter(found.values())):
        table.add_row("macro average", *(points(result["macro"]) for result in found.values()))
        first = next(iter(found.values()))
        for name in _hardest(first["groups"]):
            table.add_row(safe_text(name), *(_share(result["groups"][name]) for result in found.values()))
        left = first["left_out"]
        note = (
            f"The {count(len(first['groups']))} groups' mean; below it those with most cases. Left out of it: "
            f"{left['few_cases']} with fewer than {facts['protocol']['min_cases']} cases, "
            f"{len(left['named'])} by name. {note}"
        )
    return _noted([table], note)


def winoground_tables(facts: dict[str, Any]) -> list[Table]:
    """What `measuring.benchmarks.winoground` found."""
    found = facts["retrievers"]
    table = _table("Winoground, in percent", "score", *map(safe_name, found), "chance")
    for name, chance in (("text", "25.0"), ("image", "25.0"), ("group", "16.7")):
        table.add_row(name, *(_share(result["results"][name]) for result in found.values()), chance)
    return _noted([table], _compositional(facts))


def stress_tables(facts: dict[str, Any]) -> list[Table]:
    """What `measuring.stress.stress` found."""
    protocol = facts["protocol"]
    table = _table(
        f"Fine-grained stress test on {protocol['split']}, in percent",
        "retriever",
        "R@1",
        "95 %\ninterval",
        "MRR",
        "chance R@1",
        "questions",
    )
    for label, found in facts["retrievers"].items():
        m = found["metrics"]
        interval = between((m["r@1_ci"][0], m["r@1_ci"][1]))
        table.add_row(
            safe_text(label), points(m["r@1"]), interval, points(m["mrr"]), points(m["chance"]), count(m["n"])
        )
    oracle = protocol["oracle"]
    said = oracle.get("path") or f"{oracle.get('model')} with weights {oracle.get('weights')}"
    left = sum(protocol["left_out"].values())
    warning = f"WARNING, {protocol['circular']}. " if protocol["circular"] else ""
    note = (
        f"{warning}Oracle: {said}. Each caption among its substitutions ({count(left)} captions have none); "
        f"ties: {protocol['ties']}; the interval resamples items. {_models(facts)}"
    )
    return _noted([table], note)


def zeroshot_tables(facts: dict[str, Any]) -> list[Table]:
    """What `measuring.benchmarks.zeroshot` found."""
    protocol, found = facts["protocol"], facts["retrievers"]
    table = _table("Zero-shot classification, in percent", "", *map(safe_name, found))
    for name, label in (("top1", "top-1"), ("top5", "top-5"), ("class_mean", "top-1, mean of classes")):
        values = [result["results"][name] for result in found.values()]
        table.add_row(label, *(_share(v) if isinstance(v, dict) else points(v) for v in values))
    chance = 100 / protocol["classes"]
    templates = len(protocol["templates"])
    note = (
        f"{count(protocol['images'])} images of {count(protocol['classes'])} classes (chance {chance:.1f} %), "
        f"{templates} template{'s' if templates > 1 else ''}. Ties: {protocol['ties']}. "
        f"In brackets: 95 % Wilson intervals. {_unused(protocol)}{_models(facts)}"
    )
    return _noted([table], note)


def wiseft_tables(facts: dict[str, Any]) -> list[Table]:
    """What `measuring.retrieval.wise_ft` found."""
    split = facts["protocol"]["split"]
    table = _table(
        f"From base (0) to repaired (1) on {split}, in percent",
        "alpha",
        *(f"{way}\n{name}" for way in ("i2t", "t2i") for name in ("R@1", "R@10", "MRR")),
        "mean\nR@1",
    )
    for point in facts["points"]:
        values = [point["metrics"][d][name] for d in ("i2t", "t2i") for name in ("r@1", "r@10", "mrr")]
        best = point["alpha"] == facts["best"]
        table.add_row(
            safe_text(f"{point['alpha']:g}"),
            *(points(value) for value in values),
            points(point["mean_r@1"]),
            style="bold" if best else "",
        )
    note = f"Best mean R@1 at alpha {facts['best']:g}. An alpha that was chosen here flatters here. {_said(facts)}"
    return _noted([table], note)


def comparison_tables(facts: dict[str, Any]) -> list[Table]:
    """What `measuring.comparison.compare_runs` found."""
    made = []
    for direction, title in DIRECTIONS.items():
        table = _table(
            f"{title} on {facts['protocol']['split']}, in percent", "metrics", "R@1", "95 %\ninterval", *_others()
        )
        for label, metrics in facts["metrics"].items():
            table.add_row(safe_text(label), *_metrics(metrics[direction]))
        made.append(table)
    made += [_gains(f"{label} minus {facts['first']}", gains) for label, gains in facts["gains"].items()]
    note = f"Paired bootstrap over queries, {count(facts['protocol']['resamples'])} resamples."
    return _noted(made, f"{note} {protocol_text(facts['protocol'])}")


def safe_name(label: str) -> str:
    """A label as the heading of a column."""
    return safe_text(label).plain


def _others() -> list[str]:
    return list(METRICS.values())[1:]


def _metrics(found: dict[str, Any]) -> list[str]:
    bounds = found.get("r@1_ci")
    interval = between((bounds[0], bounds[1])) if bounds else NOTHING
    return [points(found["r@1"]), interval, *(points(found[name]) for name in list(METRICS)[1:])]


def _gains(title: str, found: dict[str, Any]) -> Table:
    table = _table(f"{safe_name(title)}, in points", "", *ALL.values())
    for name, label in METRICS.items():
        cells = []
        for part in ALL:
            gain = found[part][name]
            low, high = gain["interval"]
            cells.append(f"{signed(gain['difference'])} ({signed(low)} to {signed(high)})\np {_p(gain['p'])}")
        table.add_row(label, *cells)
    return table


def _p(value: float) -> str:
    return "≤ 0.001" if value <= 0.001 else f"= {value:.3f}"


def _hardest(groups: dict[str, Any], shown: int = 10) -> list[str]:
    return sorted(groups, key=lambda name: (-groups[name]["of"], name))[:shown]


def _share(found: dict[str, Any] | None) -> str:
    if found is None or found["percent"] is None:
        return NOTHING
    low, high = found["interval"]
    return f"{points(found['percent'])} ({low:.1f}–{high:.1f})"


def _compositional(facts: dict[str, Any]) -> str:
    protocol = facts["protocol"]
    missing = protocol["missing"]
    scored = f"{count(protocol['scored'])} of {count(protocol['listed'])} cases were scored"
    lost = f"; {count(missing['n'])} pictures could not be used: {_reasons(missing)}" if missing["n"] else ""
    return f"{scored}{lost}. Ties: {protocol['ties']}. In brackets: 95 % Wilson intervals. {_models(facts)}"


def _said(facts: dict[str, Any]) -> str:
    protocol = facts["protocol"]
    return f"{protocol_text(protocol)} {_unused(protocol)}{_models(facts)}"


def _unused(protocol: dict[str, Any]) -> str:
    unused = protocol["unused"]
    return f"{count(unused['n'])} rows could not be used: {_reasons(unused)}. " if unused["n"] else ""


def _reasons(unused: dict[str, Any]) -> str:
    counts = ", ".join(f"{count(n)} {reason.replace('_', ' ')}" for reason, n in unused["reasons"].items())
    return f"{counts} (such as {', '.join(unused['such_as'])})"


def _unmatched(protocol: dict[str, Any]) -> str:
    said = [
        f" {DIRECTIONS[direction]}: {count(found['missing_queries']['n'])} of {count(found['listed'])} queries and "
        f"{count(found['missing_answers']['n'])} answers of the file are not in the data set."
        for direction, found in protocol.get("ground_truth", {}).items()
    ]
    return "".join(said)


def _models(facts: dict[str, Any]) -> str:
    models = {f"{found['model']} in {found['precision']}" for found in facts["retrievers"].values()}
    return f"Model: {', '.join(sorted(models))}."


def _table(title: str, first: str, *others: str) -> Table:
    table = titled(title)
    table.caption_justify = "left"
    table.add_column(first, overflow="fold", min_width=8 if first else None)
    for name in others:
        table.add_column(name, justify="right", no_wrap=True, vertical="bottom")
    return table


def _noted(made: list[Table], note: str) -> list[Table]:
    """The tables with a note below the last of them."""
    made[-1].caption = safe_text(" ".join(note.split()))
    return made
