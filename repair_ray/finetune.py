"""Training as a product of a run: which retriever it starts from, what it trains on, what it leaves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from repair_ray import tables
from repair_ray.config import Config, ObjectiveConfig, TrainingConfig
from repair_ray.engines.retriever import (
    RetrieverSpec,
    check_named,
    has_own_weights,
    named_spec,
    weights_identity,
)
from repair_ray.observing.figures import FIGURES
from repair_ray.observing.rate import Rate
from repair_ray.plugins import TERMS, identity
from repair_ray.run import CAPTIONS, IMAGES, Clock, Recipe, Run, RunError
from repair_ray.sections.training import HOW
from repair_ray.stages.products import TEACHER
from repair_ray.synthesis.training_set import training_set
from repair_ray.training.items import TrainingItems, write_items
from repair_ray.training.job import WEIGHTS, Job, discard_state
from repair_ray.training.launch import train
from repair_ray.training.pairs import PairSet

Progress = Callable[[str, int, int], None]
# The hard pairs' terms are off: what a base and plain fine-tuning minimise.
PLAIN = ObjectiveConfig(placement="dispersed")


@dataclass(frozen=True)
class Retriever:
    """A retriever, and what its weights are known by: the products that they come from, or `weights`.

    `weights` is the identity of those that the config names; None where they are made in the run, or random.
    """

    spec: RetrieverSpec
    parents: tuple[str, ...] = ()
    weights: str | None = None


def named_retriever(config: Config) -> Retriever:
    """The retriever that the config names; with random weights where the config asks for a base."""
    retriever = config.retriever
    spec = named_spec(retriever.model, retriever.pretrained, retriever.precision)
    if config.base is not None:
        spec = replace(spec, weights=None)
    return Retriever(spec, weights=weights_identity(spec.weights))


def finetune(
    run: Run,
    config: Config,
    product: str,
    start: Retriever,
    training: TrainingConfig,
    *,
    objective: ObjectiveConfig = PLAIN,
    edits: tuple[str, ...] = (),
    splits: tuple[str, ...] = ("train",),
    leave_out: frozenset[str] = frozenset(),
    measure: tuple[str, ...] = (),
    progress: Progress,
) -> Retriever:
    """Make a training product, or find it ready; returns the retriever that it left.

    Args:
        edits: the `edits` and `repairs` products that add to the anchors of `splits`.
        leave_out: images to leave out, for cross-fitting.
        measure: products that the length of the training was taken from.
    """
    outcome = training.model_dump(mode="json", exclude=set(HOW))
    added = {name: identity(TERMS, name)["plugin"] for name in objective.plugged}
    settings = {
        "training": outcome,
        "objective": objective.model_dump(mode="json"),
        "retriever": {"model": start.spec.model, "weights": start.weights},
        "splits": list(splits),
        "left_out": tables.row_id(*sorted(leave_out)) if leave_out else None,
        "seed": config.seed,
        **({"plugins": added} if added else {}),
    }
    teacher = TEACHER if objective.taught else None
    made_from = (*edits, *([teacher] if teacher else ()))
    recipe = Recipe(settings, (IMAGES, CAPTIONS, *start.parents, *made_from, *measure))
    folder = run.path(product)
    if not run.ready(product, recipe):
        # A fallback fills a grid; where there are no grids it would be encoded for nothing.
        fallback = objective.paired_fallback and objective.placement != "dispersed"
        items, pairs = training_set(run, splits, edits, paired_fallback=fallback, leave_out=leave_out, teacher=teacher)
        _write_set(folder / "items", items, pairs)
        job = Job(
            name=product,
            folder=str(folder),
            items=str(folder / "items"),
            validation=_validation_set(run, folder / "validation", splits),
            spec=start.spec,
            training=training,
            objective=objective,
            store=_store_settings(run, config),
            seed=config.seed,
        )
        clock = run.clock(product)
        record = train(
            job,
            timed(clock, progress),
            faults=config.faults,
            cluster=config.cluster,
            key="base" if training is config.base else "training",
        )
        facts = {key: value for key, value in record.items() if key not in ("history", FIGURES)}
        corrected = sum(not pair.fallback for pair in pairs.corrected)
        rows = record["items_encoded"]
        run.finish(
            product,
            recipe,
            clock.seconds,
            rows=rows,
            training=facts,
            **({"gpus": training.workers} if training.use_gpu else {}),
            figures=record[FIGURES],
            corrected=corrected,
            validation=max((step["validation"] for step in record["history"] if "validation" in step), default=None),
            contrasts=len(pairs.contrasts),
        )
    # Only now: a run that is killed before has its checkpoints to go on from.
    discard_state(folder)
    return Retriever(replace(start.spec, weights=str(folder / WEIGHTS)), (product,))


def timed(clock: Clock, progress: Progress) -> Progress:
    """`progress` that also keeps the steps, their rate, and the seconds of a training product."""
    rate: list[Rate] = []

    def tell(name: str, done: int, total: int) -> None:
        if not rate:
            rate.append(Rate(done))
        clock.keep(steps=done, total=total, rate=rate[0].tell(done))
        progress(name, done, total)

    return tell


def _validation_set(run: Run, folder: Path, trained_on: tuple[str, ...]) -> str | None:
    """The folder of the validation set; None where there is none, or where it is trained on: the last step wins."""
    captions = run.read(CAPTIONS, ["split", "status"]).to_pylist()
    there = any(row["split"] == "validation" and row["status"] == tables.OK for row in captions)
    if "validation" in trained_on or not there:
        return None
    _write_set(folder, *training_set(run, ("validation",)))
    return str(folder)


def _store_settings(run: Run, config: Config) -> dict[str, Any]:
    data = config.data
    return {
        "root": str(run.folder),
        "background": data.background,
        "max_pixels": data.max_pixels,
        "max_bytes": data.max_image_mb * 2**20,
    }


def _write_set(folder: Path, items: TrainingItems, pairs: PairSet) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    write_items(str(folder), items, pairs)


def check_retriever(config: Config) -> None:
    """Raises `RetrieverError` or `RunError` for an unknown model and for weights that are not there; builds nothing."""
    retriever = config.retriever
    check_named(retriever.model, retriever.pretrained)
    if retriever.pretrained is None and config.base is None and not has_own_weights(retriever.model):
        raise RunError("retriever.pretrained is unset: name weights, or add a base section to train from scratch")
