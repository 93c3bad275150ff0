"""What a run took: when each stage worked, and seconds, tokens, pictures and money."""

from __future__ import annotations

from collections import Counter
from typing import Any

from repair_ray.report import results
from repair_ray.report.charts import bars
from repair_ray.report.pictures import Row

# A stage that stood still for longer than this, and for a tenth of its time, was stopped in between.
STOPPED_SECONDS = 10.0


def timeline(summary: dict[str, Any]) -> list[Row]:
    """The stages with where they lie in the run's time.

    Adds to each stage `after` (seconds after the run's begin), `left` and `width` (percent of the run's time), and
    `stopped` (seconds in which the stage stood still, such as between two starts of the command; None for none). All
    are None where a summary of an earlier version does not say when its stages worked.
    """
    stages = summary.get("stages") or []
    timed = [stage for stage in stages if stage.get("started") is not None]
    begin = min((stage["started"] for stage in timed), default=0.0)
    whole = max(max((stage["finished"] for stage in timed), default=0.0) - begin, 1e-9)
    return [{**stage, **_place(stage, begin, whole)} for stage in stages]


def _place(stage: Row, begin: float, whole: float) -> Row:
    if stage.get("started") is None:
        return {"after": None, "left": None, "width": None, "stopped": None}
    took = stage["finished"] - stage["started"]
    still = took - stage["seconds"]
    return {
        "after": stage["started"] - begin,
        "left": round(100 * (stage["started"] - begin) / whole, 2),
        "width": round(100 * took / whole, 2),
        "stopped": still if still > STOPPED_SECONDS and still > took / 10 else None,
    }


def costs(summary: dict[str, Any]) -> Row | None:
    """`facts` (name and value of what was spent) and `kinds` (seconds by kind of stage); None for a run without stages.

    What nobody has counted is left out.
    """
    stages = summary.get("stages") or []
    if not stages:
        return None
    seconds: Counter[str] = Counter()
    for stage in stages:
        seconds[stage["name"].rpartition("/")[2]] += stage["seconds"]
    used = results.model_use(summary)
    spent = summary.get("spent") or {}
    ends = [(stage["started"], stage["finished"]) for stage in stages if stage.get("started") is not None]
    whole = max(end for _, end in ends) - min(start for start, _ in ends) if ends else None
    facts = [
        ("from begin to end", results.duration(whole) if whole is not None else None),
        ("time of all stages", results.duration(sum(seconds.values()))),
        ("GPU time", results.duration(3600 * spent["gpu_hours"]) if spent.get("gpu_hours") else None),
        ("calls of models", results.count(sum(use.calls for use in used)) if used else None),
        ("tokens read", results.count(sum(use.input_tokens for use in used)) if used else None),
        ("tokens written", results.count(sum(use.output_tokens for use in used)) if used else None),
        ("cost of models", results.points(spent["cost"], 2) if spent.get("cost") else None),
        ("pictures edited", results.count(spent["image_edits"]) if "image_edits" in spent else None),
    ]
    kinds = bars({name: round(took) for name, took in seconds.items()})
    return {"facts": [(name, value) for name, value in facts if value is not None], "kinds": kinds}
