"""The text-only job: read sentences, train a text tower on them, measure it. One line a product."""

from __future__ import annotations

import time
from typing import Any

import pyarrow as pa

from repair_ray.config import TextConfig
from repair_ray.data.sts import SentencePair
from repair_ray.engines.retriever import check_named, weights_identity
from repair_ray.finetune import timed
from repair_ray.measuring.retrievers import Named, load
from repair_ray.measuring.sts import measure
from repair_ray.observing.figures import FIGURES
from repair_ray.observing.heartbeat import Heartbeat
from repair_ray.run import Recipe, Run, RunError, read_json, write_json
from repair_ray.sections.training import HOW
from repair_ray.stages.graph import Progress, quiet, start_ray
from repair_ray.stages.texts import ingest_pairs, ingest_texts, pairs_product
from repair_ray.training.job import HISTORY, discard_state
from repair_ray.training.texts.batches import usable
from repair_ray.training.texts.job import TEXT_CONFIG, TEXTS, TRAINING, TextJob, start_spec, trained_spec
from repair_ray.training.texts.launch import train_texts

METRICS = "metrics"
SPLITS = ("validation", "test")


def run_texts(config: TextConfig, *, redo: list[str] | None = None, progress: Progress = quiet) -> dict[str, Any]:
    """Run the whole text-only job of a config, or go on with it; returns what `summary.json` holds.

    Raises:
        RunError, DataError, RetrieverError: with a message for the person who started it.
    """
    run = Run(config.run_dir)
    with run.locked(), Heartbeat(run.folder):
        check_named(config.retriever.model, config.retriever.pretrained)
        for stage in redo or []:
            run.redo(stage)
        if not (run.folder / TEXT_CONFIG).exists():
            _write_config(run, config)
        ingest_texts(run, config)
        for split in SPLITS:
            ingest_pairs(run, config, split)
        _train(run, config, progress)
        _measure(run, config)
        _write_config(run, config)
        summary = _summary(run, config)
        write_json(run.folder / "summary.json", summary)
        return summary


def _write_config(run: Run, config: TextConfig) -> None:
    write_json(run.folder / TEXT_CONFIG, config.model_dump(mode="json"))


def _train(run: Run, config: TextConfig, progress: Progress) -> None:
    start = start_spec(config)
    outcome = config.training.model_dump(mode="json", exclude=set(HOW))
    settings = {
        "training": outcome,
        "objective": config.objective.model_dump(mode="json"),
        "retriever": {"model": start.model, "weights": weights_identity(start.weights)},
        "seed": config.seed,
    }
    validation = pairs_product("validation") if config.validation else None
    recipe = Recipe(settings, (TEXTS, *((validation,) if validation else ())))
    folder = run.path(TRAINING)
    if run.ready(TRAINING, recipe):
        discard_state(folder)  # where a run was killed before it could
        return
    _check_mixing(run, config)
    start_ray()
    job = TextJob(
        name=TRAINING,
        run=str(run.folder),
        folder=str(folder),
        texts=TEXTS,
        validation=validation,
        spec=start,
        training=config.training,
        objective=config.objective,
        seed=config.seed,
    )
    clock = run.clock(TRAINING)
    record = train_texts(job, timed(clock, progress), cluster=config.cluster)
    facts = {key: record[key] for key in ("steps", "best_step", "texts_encoded", "pace")}
    rows = record["texts_encoded"]
    run.finish(TRAINING, recipe, clock.seconds, rows=rows, training=facts, figures=record[FIGURES])
    # Only now: a run that is killed before has its checkpoints to go on from.
    discard_state(folder)


def _check_mixing(run: Run, config: TextConfig) -> None:
    """Fewer texts than a batch make smaller batches, in which there may be fewer negatives than are asked for."""
    texts = len(usable(run.read(TEXTS, ["status"])))
    mixing = config.objective.hard_negative_mixing
    if mixing is not None and mixing.k >= min(texts, config.training.batch_size):
        raise RunError(
            f"objective.hard_negative_mixing.k={mixing.k} is not below the {texts} texts that there are: "
            "lower k, or read more texts"
        )
    if texts < config.training.workers:
        raise RunError(f"{texts} texts do not go round training.workers={config.training.workers}; lower it")


def _measure(run: Run, config: TextConfig) -> None:
    """Metrics of the trained text tower, and of what it was before where it had weights, kept as facts."""
    there = [split for split in SPLITS if getattr(config, split) is not None]
    if not there:
        return
    recipe = Recipe(
        {"bootstrap": config.bootstrap, "seed": config.seed, "precision": config.retriever.precision},
        (TRAINING, *map(pairs_product, there)),
    )
    if run.ready(METRICS, recipe):
        return
    start = time.monotonic()
    specs = {"trained": trained_spec(run, config)}
    if start_spec(config).weights is not None:
        specs = {"base": start_spec(config), **specs}
    found: dict[str, dict[str, Any]] = {split: {} for split in there}
    for label, spec in specs.items():
        encoder = load(Named(label, spec, config.retriever.batch_size))
        for split in there:
            pairs = _pairs(usable(run.read(pairs_product(split))))
            found[split][label] = measure(encoder, pairs, config.bootstrap, config.seed)
    rows = sum(len(usable(run.read(pairs_product(split), ["status"]))) for split in there)
    run.finish(METRICS, recipe, time.monotonic() - start, rows=rows, metrics=found)


def _pairs(table: pa.Table) -> list[SentencePair]:
    names = ("first", "second", "score", "source", "subset")
    return [SentencePair(**{name: row[name] for name in names}) for row in table.to_pylist()]


def _summary(run: Run, config: TextConfig) -> dict[str, Any]:
    manifests = dict(run.products())
    return {
        "name": config.name,
        "seed": config.seed,
        "config": config.model_dump(mode="json"),
        "data": {
            name: {key: manifests[name][key] for key in ("rows", "statuses", "reasons")}
            for name in (TEXTS, *map(pairs_product, SPLITS))
            if name in manifests
        },
        "training": {
            **manifests[TRAINING]["training"],
            "seconds": manifests[TRAINING]["seconds"],
            "history": (read_json(run.path(TRAINING) / HISTORY) or {}).get("history", []),
        },
        "metrics": manifests.get(METRICS, {}).get("metrics", {}),
    }
