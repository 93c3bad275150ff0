"""What a run has spent: tokens, edited pictures, GPU hours, money. Read from manifests and tables alone."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow.compute as pc

from repair_ray import tables
from repair_ray.config import BudgetConfig, Config
from repair_ray.run import Run
from repair_ray.stages.products import round_place


@dataclass(frozen=True)
class Spent:
    """What products of a run took together, named as in `rounds.budget`."""

    tokens: int
    image_edits: int
    gpu_hours: float
    cost: float

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "gpu_hours": round(self.gpu_hours, 4), "cost": round(self.cost, 4)}

    def beyond(self, budget: BudgetConfig) -> str | None:
        """Which part of a budget is used up, in words; None while there is some left of each."""
        for name, limit in budget.model_dump().items():
            used = getattr(self, name)
            if limit is not None and used >= limit:
                return f"rounds.budget.{name}={limit:g} is spent: {used:g}"
        return None


def spent(run: Run, config: Config, rounds: int | None = None) -> Spent:
    """What the run has spent; with `rounds`, up to the end of that round, without controls and later rounds."""

    def counts(product: str) -> bool:
        place = re.fullmatch(r"round-(\d+)", product.partition("/")[0])
        return rounds is None or (int(place[1]) <= rounds if place else not product.startswith("controls/"))

    products = [(name, manifest) for name, manifest in run.products() if counts(name)]
    asked = [use for name, use in _asked(run, config).items() if counts(name)]
    return Spent(
        tokens=sum(use["input_tokens"] + use["output_tokens"] for use in asked),
        image_edits=sum(_pictures(run, name) for name, found in products if found.get("table") == tables.EDITS.name),
        gpu_hours=sum(found.get("gpus", 0) * found["seconds"] for _, found in products) / 3600,
        cost=sum(use["cost"] for use in asked),
    )


def language_usage(run: Run, config: Config, rounds: list[int]) -> dict[str, Any]:
    """What models were asked, by product: questions, calls, tokens, latency in seconds, cost; empty where none was.

    `calls_per_pair`: calls for the rounds over their accepted edits. Answers that an earlier stage or run had got count
    with what they took then.
    """
    used = _asked(run, config)
    if not used:
        return {}
    places = [round_place(number) for number in rounds]
    edits = sum((run.manifest(f"{place}/edits") or {}).get("statuses", {}).get(tables.OK, 0) for place in places)
    calls = sum(sums["calls"] for name, sums in used.items() if name.partition("/")[0] in places)
    return {"products": used, "calls_per_pair": round(calls / edits, 2) if edits else None}


def _asked(run: Run, config: Config) -> dict[str, dict[str, Any]]:
    used: dict[str, dict[str, Any]] = {}
    for name, manifest in run.products():
        if manifest.get("table") == tables.ANSWERS.name:
            table = run.read(name, ["calls", "input_tokens", "output_tokens", "seconds"])
            sums = {column: round(pc.sum(table[column]).as_py() or 0, 2) for column in table.column_names}
            own = config.audit.language if name.endswith("verdicts_answers") else config.edit.language
            language = own or config.language
            price = language.price
            cost = (sums["input_tokens"] * price.input + sums["output_tokens"] * price.output) / 1e6
            used[name] = {"model": language.model, "questions": len(table), **sums, "cost": round(cost, 4)}
    return used


def _pictures(run: Run, edits: str) -> int:
    """Pictures that an editor made, those that were not chosen included."""
    candidates = run.read(edits, ["candidates"])["candidates"].combine_chunks().flatten()
    return len(candidates) - candidates.field("uri").null_count
