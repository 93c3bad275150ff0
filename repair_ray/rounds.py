"""The main job: base, mine, audit, edit, train, evaluate, and the controls beside it.

Each line of `Round.run` makes one product of the run directory, or finds it ready. Nothing here knows a model, a
column's meaning or a Ray option.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from repair_ray import tables
from repair_ray.config import Config, ObjectiveConfig, Strategy, TrainingConfig, WorldConfig
from repair_ray.data.access import image_store
from repair_ray.engines.retriever import (
    RetrieverError,
    RetrieverSpec,
    has_own_weights,
    is_file,
    is_packaged,
    named_spec,
    weights_identity,
)
from repair_ray.evaluation.truth import measure_truth
from repair_ray.run import CAPTIONS, IMAGES, Clock, Recipe, Run, RunError, read_json, write_json
from repair_ray.stages.audit import audit
from repair_ray.stages.duplicates import find_duplicates, find_near_embeddings
from repair_ray.stages.edit import edit
from repair_ray.stages.embed import embed
from repair_ray.stages.evaluate import evaluate
from repair_ray.stages.graph import Progress, quiet, start_ray
from repair_ray.stages.ingest import ingest
from repair_ray.stages.mine import fold_of, mine
from repair_ray.stages.sources import source_digest, sources_of
from repair_ray.summary import make_summary
from repair_ray.synthesis.strategies import merged_failures, paired_edits, random_failures
from repair_ray.synthesis.training_set import training_set
from repair_ray.training.items import TrainingItems, write_items
from repair_ray.training.job import HISTORY, STATE_FOLDER, WEIGHTS, Job
from repair_ray.training.launch import train
from repair_ray.training.pairs import PairSet
from repair_ray.world.generate import make_world

WORLD = "data/world"
CONFIG = "config.json"
BASE = "base/training"
ROUND = "round-1"
PLAIN = ObjectiveConfig(placement="dispersed")


def run_config(config: Config, *, redo: list[str] | None = None, progress: Progress = quiet) -> dict[str, Any]:
    """Run the whole job of a config, or go on with it; returns what `summary.json` holds.

    Raises:
        RunError, DataError, RetrieverError: with a message for the person who started it.
    """
    run = Run(config.run_dir)
    with run.locked():
        # What is not there is told before Ray starts.
        sources_of(config.data, run.path(WORLD))
        check_retriever(config)
        for stage in redo or []:
            run.redo(stage)
        start_ray()
        summary = Round(run, config, progress).run()
        write_json(run.folder / "summary.json", summary)
        return summary


@dataclass(frozen=True)
class Retriever:
    """A retriever, and what its weights are known by: the products that they come from, or `weights`.

    `weights` is the identity of those that the config names; None where they are made in the run, or random.
    """

    spec: RetrieverSpec
    parents: tuple[str, ...] = ()
    weights: str | None = None


@dataclass
class Round:
    """One round of repair with its controls."""

    run_: Run
    config: Config
    progress: Progress

    def run(self) -> dict[str, Any]:
        config = self.config
        # A run that is refused for changed settings keeps the config that its tables were made with.
        if not (self.run_.folder / CONFIG).exists():
            self._write_config()
        self._ingest()
        base = self._base()
        self._embed(f"{ROUND}/embeddings", base, tuple(dict.fromkeys((config.mining.split, config.evaluation.split))))
        find_near_embeddings(
            self.run_, config, f"{ROUND}/near_pictures", f"{ROUND}/embeddings", self.config.trained_splits
        )
        evaluate(self.run_, config, "base/metrics", f"{ROUND}/embeddings")
        self._variant(ROUND, config.strategy, base, config.training)
        for control in config.controls:
            self._control(control, base)
        if config.data.world is not None and config.strategy in ("repair", "error_agnostic"):
            measure_truth(self.run_, ROUND, image_store(self.run_.folder, config.data))
        self._write_config()
        return make_summary(self.run_, config, ROUND)

    def _write_config(self) -> None:
        write_json(self.run_.folder / CONFIG, self.config.model_dump(mode="json"))

    def _ingest(self) -> None:
        data, world = self.config.data, self.config.data.world
        folder = self.run_.path(WORLD)
        if world is not None:
            _draw_world(folder, world)
        sources = sources_of(data, folder)
        apart = {"shard_mb", "near_cosine"} | (set() if data.near_same else {"near_bits"})
        settings: dict[str, Any] = {"data": data.model_dump(mode="json", exclude=apart)}
        if world is None:
            settings["files"] = {split: source_digest(path) for split, path in sources.items()}
        ingest(self.run_, self.config, settings, sources, self.progress)
        find_duplicates(self.run_, self.config, IMAGES, CAPTIONS)

    def _base(self) -> Retriever:
        """The retriever that is repaired: trained here first, or as the config names it."""
        return self._named() if self.config.base is None else self._train(BASE, self._named(), self.config.base)

    def _named(self) -> Retriever:
        """The retriever that the config names; with random weights where the config asks for a base."""
        retriever = self.config.retriever
        spec = named_spec(retriever.model, retriever.pretrained, retriever.precision)
        if self.config.base is not None:
            spec = replace(spec, weights=None)
        return Retriever(spec, weights=weights_identity(spec.weights))

    def _embed(self, product: str, retriever: Retriever, splits: tuple[str, ...]) -> None:
        embed(
            self.run_,
            self.config,
            product,
            retriever.spec,
            splits,
            retriever.parents,
            weights=retriever.weights,
            progress=self.progress,
        )

    def _variant(self, place: str, strategy: Strategy, base: Retriever, training: TrainingConfig) -> None:
        """Synthesise with one strategy, train on it, evaluate."""
        edits = self._synthesise(place, strategy, base)
        if edits is not None:
            self._check_repaired(edits)
        self._finetune(place, base, training, self.config.objective if edits else PLAIN, edits)

    def _finetune(
        self,
        place: str,
        base: Retriever,
        training: TrainingConfig,
        objective: ObjectiveConfig,
        edits: str | None,
        measure: tuple[str, ...] = (),
    ) -> None:
        """Train and evaluate; `measure`: products that the length of the training was taken from."""
        repaired = self._train(
            f"{place}/training",
            base,
            training,
            objective=objective,
            edits=edits,
            splits=self.config.trained_splits,
            measure=measure,
        )
        self._embed(f"{place}/evaluation", repaired, (self.config.evaluation.split,))
        evaluate(self.run_, self.config, f"{place}/metrics", f"{place}/evaluation")

    def _check_mined(self, failures: str) -> None:
        manifest = self.run_.manifest(failures) or {}
        if not manifest["statuses"].get(tables.OK):
            raise RunError(
                f"{failures}: split {self.config.mining.split} shows no failure to repair ({_reasons(manifest)}); "
                "mine a larger split, with mining.keep=top_k, or with mining.folds"
            )

    def _check_repaired(self, edits: str) -> None:
        manifest = self.run_.manifest(edits) or {}
        if not manifest["statuses"].get(tables.OK):
            tried = f"none of {manifest['rows']} failures gave a pair to train on"
            raise RunError(f"{edits}: {tried} ({_reasons(manifest)})")

    def _synthesise(self, place: str, strategy: Strategy, base: Retriever) -> str | None:
        run, config, embeddings = self.run_, self.config, f"{ROUND}/embeddings"
        if strategy == "vanilla":
            return None
        failures, verdicts, edits = f"{ROUND}/failures", f"{ROUND}/verdicts", f"{place}/edits"
        self._mine(failures, embeddings)
        self._check_mined(failures)
        if strategy == "error_agnostic":
            random_failures(run, config, f"{place}/random_failures", failures)
            failures, verdicts = f"{place}/random_failures", f"{place}/random_verdicts"
        audit(run, config, verdicts, failures, self.progress)
        if strategy == "mined":
            paired_edits(run, config, edits, failures, verdicts)
        else:
            edit(run, config, edits, verdicts, failures, embeddings, base.spec, self.progress)
        return edits

    def _mine(self, failures: str, embeddings: str) -> None:
        if not self.config.mining.folds:
            mine(self.run_, self.config, failures, embeddings, progress=self.progress)
            return
        parts = [self._mine_fold(fold) for fold in range(self.config.mining.folds)]
        merged_failures(self.run_, self.config, failures, parts)

    def _mine_fold(self, fold: int) -> str:
        """Mine one fold with a retriever that was trained on the others."""
        config, place, split = self.config, f"folds/{fold}", self.config.mining.split
        images = self.run_.read(IMAGES, ["image_id", "group_id", "split"]).to_pylist()
        captions = self.run_.read(CAPTIONS, ["caption_id", "group_id", "split"]).to_pylist()
        inside = [
            row.get("image_id") or row["caption_id"]
            for row in images + captions
            if row["split"] == split and fold_of(row["group_id"], config.mining.folds) == fold
        ]
        trained = self._train(
            f"{place}/training", self._named(), config.base or config.training, leave_out=frozenset(inside)
        )
        self._embed(f"{place}/embeddings", trained, (split,))
        # The budget is for all folds together.
        whole = config.model_copy(update={"mining": config.mining.model_copy(update={"budget": None})})
        mine(self.run_, whole, f"{place}/failures", f"{place}/embeddings", ids=inside, progress=self.progress)
        return f"{place}/failures"

    def _control(self, control: str, base: Retriever) -> None:
        """One control beside the round, from the same base."""
        training, place = self.config.training, f"controls/{control}"
        if control.startswith("placement_"):
            # The round's own edits, trained on with another placement of the hard pairs.
            placement = control.removeprefix("placement_")
            objective = self.config.objective.model_copy(update={"placement": placement})
            self._finetune(place, base, training, objective, f"{ROUND}/edits")
        elif control == "vanilla_equal_compute":
            # As many images and texts encoded as the repair run did, in batches of the same size.
            record = read_json(self.run_.path(f"{ROUND}/training") / HISTORY) or {}
            steps = max(1, round(record["items_encoded"] / (2 * min(training.batch_size, self._training_images()))))
            same = training.model_copy(update={"steps": steps})
            self._finetune(place, base, same, PLAIN, None, measure=(f"{ROUND}/training",))
        else:
            strategies: dict[str, Strategy] = {
                "vanilla_equal_steps": "vanilla",
                "mined": "mined",
                "error_agnostic": "error_agnostic",
            }
            self._variant(place, strategies[control], base, training)

    def _train(
        self,
        product: str,
        start: Retriever,
        training: TrainingConfig,
        *,
        objective: ObjectiveConfig = PLAIN,
        edits: str | None = None,
        splits: tuple[str, ...] = ("train",),
        leave_out: frozenset[str] = frozenset(),
        measure: tuple[str, ...] = (),
    ) -> Retriever:
        run, config = self.run_, self.config
        # Workers, threads, devices and caches change how fast training is, not what it makes.
        outcome = training.model_dump(
            mode="json", exclude={"workers", "cpus_per_worker", "use_gpu", "image_cache_mb", "decode_threads"}
        )
        settings = {
            "training": outcome,
            "objective": objective.model_dump(mode="json"),
            "retriever": {"model": start.spec.model, "weights": start.weights},
            "splits": list(splits),
            "left_out": tables.row_id(*sorted(leave_out)) if leave_out else None,
            "seed": config.seed,
        }
        recipe = Recipe(settings, (IMAGES, CAPTIONS, *start.parents, *((edits,) if edits else ()), *measure))
        folder = run.path(product)
        if not run.ready(product, recipe):
            # A fallback fills a grid; where there are no grids it would be encoded for nothing.
            fallback = objective.paired_fallback and objective.placement != "dispersed"
            items, pairs = training_set(run, splits, edits, paired_fallback=fallback, leave_out=leave_out)
            _write_set(folder / "items", items, pairs)
            job = Job(
                name=product,
                folder=str(folder),
                items=str(folder / "items"),
                validation=self._validation_set(folder / "validation", splits),
                spec=start.spec,
                training=training,
                objective=objective,
                store=self._store_settings(),
                seed=config.seed,
            )
            clock = run.clock(product)
            record = train(job, self._timed(clock))
            facts = {key: value for key, value in record.items() if key != "history"}
            corrected = sum(not pair.fallback for pair in pairs.corrected)
            rows = record["items_encoded"]
            run.finish(product, recipe, clock.seconds, rows=rows, training=facts, corrected=corrected)
            # Only now: a run that is killed before has its checkpoints to go on from.
            shutil.rmtree(folder / STATE_FOLDER, ignore_errors=True)
        return Retriever(replace(start.spec, weights=str(folder / WEIGHTS)), (product,))

    def _timed(self, clock: Clock) -> Progress:
        def tell(name: str, done: int, total: int) -> None:
            clock.keep(steps=done, total=total)
            self.progress(name, done, total)

        return tell

    def _training_images(self) -> int:
        rows = self.run_.read(IMAGES, ["split", "status"]).to_pylist()
        splits = self.config.trained_splits
        return sum(row["split"] in splits and row["status"] == tables.OK for row in rows)

    def _validation_set(self, folder: Path, trained_on: tuple[str, ...]) -> str | None:
        """The folder of the validation set; None where there is none, or where it is trained on: the last step wins."""
        captions = self.run_.read(CAPTIONS, ["split", "status"]).to_pylist()
        there = any(row["split"] == "validation" and row["status"] == tables.OK for row in captions)
        if "validation" in trained_on or not there:
            return None
        _write_set(folder, *training_set(self.run_, ("validation",)))
        return str(folder)

    def _store_settings(self) -> dict[str, Any]:
        data = self.config.data
        return {
            "root": str(self.run_.folder),
            "background": data.background,
            "max_pixels": data.max_pixels,
            "max_bytes": data.max_image_mb * 2**20,
        }


def _reasons(manifest: dict[str, Any]) -> str:
    """Up to five reasons of a table's rejects and errors, with their counts."""
    return "; ".join(f"{count} x {reason}" for reason, count in list(manifest["reasons"].items())[:5])


def check_retriever(config: Config) -> None:
    """Raises `RetrieverError` or `RunError` for an unknown model and for weights that are not there; builds nothing."""
    model, weights = config.retriever.model, config.retriever.pretrained
    if weights is None and config.base is not None and is_packaged(model):
        return
    # Only now, as open_clip takes seconds to import.
    from repair_ray.engines.encoder import check_tag, resolve_model

    resolve_model(model)
    if weights is None:
        if config.base is None and not has_own_weights(model):
            raise RunError("retriever.pretrained is unset: name weights, or add a base section to train from scratch")
    elif has_own_weights(model):
        raise RunError(f"retriever.pretrained is set, and retriever.model {model} has its own weights: unset one")
    elif not is_file(weights):
        check_tag(model, weights)
    elif not Path(weights).is_file():
        raise RetrieverError(f"retriever.pretrained: no checkpoint at {weights}")


def _draw_world(folder: Path, world: WorldConfig) -> None:
    """The world's files, drawn anew when they are of other settings (`--redo images`)."""
    settings = world.model_dump(mode="json")
    if read_json(folder / "world.json") == settings:
        return
    try:
        make_world(folder, world.train, world.validation, world.test, world.seed, world.distractors)
    except ValueError as error:
        raise RunError(f"data.world: {error}") from None
    write_json(folder / "world.json", settings)


def _write_set(folder: Path, items: TrainingItems, pairs: PairSet) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    write_items(str(folder), items, pairs)
