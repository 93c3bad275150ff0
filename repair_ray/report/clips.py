"""The table of a run of SAN on clips: what each variant knows, coarse and fine."""

from __future__ import annotations

from typing import Any

from rich.table import Table

from repair_ray.report.plain import safe_text, titled
from repair_ray.report.results import between, count, points


def clips_tables(summary: dict[str, Any]) -> list[Table]:
    """What `clips.job.run_clips` found."""
    table = titled(f"Clips of {summary['split']}, R@1 in percent")
    table.caption_justify = "left"
    table.add_column("")
    for name in ("clip to\ncaption", "caption\nto clip", "fine-\ngrained", "95 %\ninterval"):
        table.add_column(name, justify="right", no_wrap=True, vertical="bottom")
    for name, found in summary["variants"].items():
        fine = found["fine"]
        interval = between((fine["r@1_ci"][0], fine["r@1_ci"][1]))
        coarse = (points(found[direction]["r@1"]) for direction in ("i2t", "t2i"))
        table.add_row(safe_text(name), *coarse, points(fine["r@1"]), interval)
    any_ = next(iter(summary["variants"].values()))
    oracle = summary["oracle"]
    said = oracle.get("path") or f"{oracle.get('model')}, weights {oracle.get('weights')}"
    warning = f"WARNING, {summary['circular']}. " if summary["circular"] else ""
    note = (
        f"{warning}Fine-grained: a clip chooses its caption among {count(any_['fine']['n'])} times some substitutions "
        f"(chance {points(any_['fine']['chance'])}); a tie is wrong. Oracle: {said}. "
        f"{count(any_['i2t']['n'])} clips, {count(any_['t2i']['n'])} captions. {_problems(summary['clips'])}"
    )
    table.caption = safe_text(" ".join(note.split()))
    return [table]


def _problems(clips: dict[str, Any]) -> str:
    told = ", ".join(f"{count(n)} {reason.replace('_', ' ')}" for reason, n in clips["problems"].items())
    return f"Rows that could not be used: {told}." if told else ""
