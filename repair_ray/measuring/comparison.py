"""Finished metrics side by side: what each retriever gains over the first, by the ranks that its evaluation kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

from repair_ray import tables
from repair_ray.evaluation.compare import RESAMPLES, QueryError, Ranks, compare
from repair_ray.run import Run, RunError
from repair_ray.stages.products import result_place

METRICS = "metrics"


@dataclass(frozen=True)
class Measured:
    """The metrics of one retriever, with the rank of each query (0 where there is no positive)."""

    label: str
    metrics: dict[str, Any]
    protocol: dict[str, Any]
    ranks: dict[str, Ranks]


def compare_runs(targets: Sequence[str], *, resamples: int = RESAMPLES, seed: int = 0) -> dict[str, Any]:
    """What each of the targets gains over the first, with 95 % intervals and p-values.

    A target is a run directory (its repaired retriever), or one of its metrics: `RUN/base`, `RUN/controls/mined`.

    Raises:
        RunError: fewer than two, no metrics there, or metrics of other queries (says which).
    """
    if len(targets) < 2:
        raise RunError("name at least two runs, or metrics of runs, to compare")
    found = [read_measured(target) for target in targets]
    for one, other in combinations(found, 2):
        if one.label == other.label:
            raise RunError(f"{one.label} is named twice")
    first = found[0]
    gains = {}
    for other in found[1:]:
        _same_gallery(first, other)
        try:
            gains[other.label] = compare(
                first.ranks, other.ranks, (first.label, other.label), resamples=resamples, seed=seed
            )
        except QueryError as error:
            raise RunError(f"{error}. Only metrics of the same split of the same data can be compared") from None
    return {
        "first": first.label,
        "protocol": {**first.protocol, "resamples": resamples, "seed": seed},
        "metrics": {measured.label: measured.metrics for measured in found},
        "gains": gains,
    }


def read_measured(target: str) -> Measured:
    """The metrics that a target names. Raises `RunError`: there is no run, or it has none."""
    path = Path(target)
    folder = next((place for place in (path, *path.parents) if (place / "config.json").is_file()), None)
    if folder is None:
        raise RunError(f"there is no run at {target}")
    run = Run(folder)
    below = path.relative_to(folder).as_posix()
    product = (
        f"{result_place(run)}/{METRICS}" if below == "." else below if path.name == METRICS else f"{below}/{METRICS}"
    )
    manifest = run.manifest(product)
    if manifest is None:
        has = ", ".join(name for name, _ in run.products() if name.endswith(f"/{METRICS}"))
        raise RunError(f"{product} does not exist in {folder}; it has: {has or 'no metrics yet'}")
    protocol = manifest.get("protocol", {})
    return Measured(target.rstrip("/"), manifest["metrics"], protocol, _ranks(run, product, manifest))


def _ranks(run: Run, product: str, manifest: dict[str, Any]) -> dict[str, Ranks]:
    from repair_ray.stages.evaluate import rank_queries, read_ranks

    if manifest.get("table") == tables.RANKS.name:
        return read_ranks(run, product)
    # Metrics that kept no ranks: the embeddings that they were made from give them again.
    (embeddings,) = manifest["recipe"]["parents"]
    return rank_queries(run, embeddings, manifest["protocol"]["split"])


def _same_gallery(first: Measured, other: Measured) -> None:
    splits = [measured.protocol.get("split") for measured in (first, other)]
    if splits[0] != splits[1]:
        raise RunError(
            f"{first.label} was measured on split {splits[0]!r}, {other.label} on {splits[1]!r}: "
            "only metrics of the same split can be compared"
        )
