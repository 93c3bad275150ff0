"""The main job: base, rounds of repair until something ends them, and the controls beside the first.

A round is mined before it is decided whether it is repaired: so a run of many rounds ends with the failures that its
last retriever has left, and goes on from there when it is given more rounds or a larger budget.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from repair_ray.config import Config
from repair_ray.data.access import image_store
from repair_ray.data.class_folders import read_class_folders, read_templates
from repair_ray.evaluation.truth import measure_truth
from repair_ray.evaluation.zeroshot import TEMPLATES
from repair_ray.finetune import Retriever, check_retriever, finetune, named_retriever
from repair_ray.measuring.benchmarks import zeroshot
from repair_ray.measuring.retrievers import Named
from repair_ray.observing.heartbeat import Heartbeat
from repair_ray.repair_review.refusals import Refusals
from repair_ray.rounds.ending import Ended, Measured, ending
from repair_ray.rounds.one import Round
from repair_ray.rounds.spending import spent
from repair_ray.rounds.summary import make_summary
from repair_ray.run import CAPTIONS, IMAGES, Recipe, Run, RunError, read_json, write_json
from repair_ray.stages.data import WORLD, make_data
from repair_ray.stages.duplicates import find_near_embeddings
from repair_ray.stages.evaluate import evaluate
from repair_ray.stages.graph import Progress, quiet, start_ray
from repair_ray.stages.products import BASE, ROUND, round_place
from repair_ray.stages.sources import sources_of
from repair_ray.tables import OK
from repair_ray.training.job import HISTORY

CONFIG = "config.json"
EQUAL_COMPUTE = "vanilla_equal_compute"


def run_config(config: Config, *, redo: list[str] | None = None, progress: Progress = quiet) -> dict[str, Any]:
    """Run the whole job of a config, or go on with it; returns what `summary.json` holds.

    Raises:
        RunError, DataError, RetrieverError: with a message for the person who started it.
    """
    run = Run(config.run_dir)
    with run.locked(), Heartbeat(run.folder):
        # What is not there is told before Ray starts.
        sources_of(config.data, run.path(WORLD))
        check_retriever(config)
        if config.rounds.zeroshot is not None:
            _templates(config)
            read_class_folders(Path(config.rounds.zeroshot.classes))
        for stage in redo or []:
            run.redo(stage)
        # What people say while the run works is heard when it goes on the next time.
        refusals = Refusals.read(run, config.review)
        start_ray()
        summary = Rounds(run, config, progress, refusals).run()
        write_json(run.folder / "summary.json", summary)
        return summary


@dataclass
class Rounds:
    """The rounds of a run, and its controls."""

    run_: Run
    config: Config
    progress: Progress
    refusals: Refusals

    def run(self) -> dict[str, Any]:
        config = self.config
        # A run that is refused for changed settings keeps the config that its tables were made with.
        if not (self.run_.folder / CONFIG).exists():
            self._write_config()
        make_data(self.run_, config, self.progress)
        self._check_validation()
        base = self._base()
        first = self._round(base, base, 1)
        first.embed()
        find_near_embeddings(self.run_, config, f"{ROUND}/near_pictures", f"{ROUND}/embeddings", config.trained_splits)
        evaluate(self.run_, config, "base/metrics", f"{ROUND}/embeddings")
        ended = self._repair(first)
        for control in config.control_names:
            self._control(control, base, ended.rounds)
        if config.data.world is not None and config.strategy in ("repair", "error_agnostic") and _known_edits(config):
            for number in range(1, ended.rounds + 1):
                measure_truth(self.run_, round_place(number), image_store(self.run_.folder, config.data))
        self._write_config()
        return make_summary(self.run_, config, ended)

    def _repair(self, first: Round) -> Ended:
        """Round after round, until one of `rounds` says that it is enough."""
        config, base = self.config, first.retriever
        measured, current = [self._measured(0, base)], first
        while True:
            number = current.number
            if number > 1:
                current.embed()
                current.mine()
            elif config.rounds.number > 1:
                current.mine()
            new = current.found(f"{current.place}/failures") if config.rounds.number > 1 else None
            ended = ending(config.rounds, measured, spent(self.run_, config, number - 1), new)
            if ended is not None:
                return ended
            edits = current.synthesise()
            if edits is not None and not current.found(edits) and number > 1:
                return Ended(number - 1, number - 1, f"none of the {new} new failures gave a pair to train on")
            if edits is not None:
                current.check_repaired(edits)
            repaired = current.train(edits)
            measured.append(self._measured(number, repaired))
            if config.rounds.number == 1:
                return Ended(1, 1, None)
            current = self._round(repaired, repaired if config.rounds.start == "last" else base, number + 1)

    def _round(self, retriever: Retriever, start: Retriever, number: int) -> Round:
        own = self.config.of_round(number)
        place = round_place(number)
        return Round(self.run_, self.config, self.progress, retriever, start, own, self.refusals, place, number)

    def _measured(self, number: int, retriever: Retriever) -> Measured:
        """What a round has come to, on data that is not the evaluation's."""
        training = BASE if number == 0 else f"{round_place(number)}/training"
        validation = (self.run_.manifest(training) or {}).get("validation")
        return Measured(validation, self._zero_shot("base" if number == 0 else round_place(number), retriever))

    def _zero_shot(self, place: str, retriever: Retriever) -> float | None:
        """Zero-shot accuracy in percent, where it is guarded."""
        guard = self.config.rounds.zeroshot
        if guard is None:
            return None
        product, templates = f"{place}/zeroshot", _templates(self.config)
        settings = {"classes": guard.classes, "templates": list(templates), "weights": retriever.weights}
        recipe = Recipe(settings, retriever.parents)
        if not self.run_.ready(product, recipe):
            start = time.monotonic()
            named = Named(place, retriever.spec, self.config.retriever.batch_size)
            facts = zeroshot([named], Path(guard.classes), templates)
            self.run_.finish(
                product, recipe, time.monotonic() - start, rows=facts["protocol"]["images"], zeroshot=facts
            )
        (found,) = (self.run_.manifest(product) or {})["zeroshot"]["retrievers"].values()
        return float(found["results"]["top1"]["percent"])

    def _write_config(self) -> None:
        write_json(self.run_.folder / CONFIG, self.config.model_dump(mode="json"))

    def _base(self) -> Retriever:
        """The retriever that is repaired: trained here first, or as the config names it."""
        named, training = named_retriever(self.config), self.config.base
        if training is None:
            return named
        return finetune(self.run_, self.config, BASE, named, training, progress=self.progress)

    def _control(self, control: str, base: Retriever, rounds: int) -> None:
        """One control beside the first round, from the same base: the round with other settings."""
        config, place = self.config.control(control), f"controls/{control}"
        if control != EQUAL_COMPUTE:
            made = Round(self.run_, self.config, self.progress, base, base, config, self.refusals, place)
            edits = made.synthesise()
            if edits is not None:
                made.check_repaired(edits)
            made.train(edits)
            return
        # As many images and texts encoded as all rounds did, in batches of the same size.
        trained = [f"{round_place(number)}/training" for number in range(1, rounds + 1)]
        encoded = sum((read_json(self.run_.path(product) / HISTORY) or {})["items_encoded"] for product in trained)
        batch = min(config.training.batch_size, self._training_images())
        steps = max(1, round(encoded / (2 * batch)))
        same = config.model_copy(update={"training": config.training.model_copy(update={"steps": steps})})
        # It is as long as the rounds are now: of a run that has gone on, an older one says nothing any more.
        parents = self.run_.parents(f"{place}/training")
        if parents is not None and parents != {IMAGES, CAPTIONS, *base.parents, *trained}:
            self.run_.redo(f"{place}/training")
        made = Round(self.run_, self.config, self.progress, base, base, same, self.refusals, place)
        made.train(None, measure=tuple(trained))

    def _training_images(self) -> int:
        rows = self.run_.read(IMAGES, ["split", "status"]).to_pylist()
        splits = self.config.trained_splits
        return sum(row["split"] in splits and row["status"] == OK for row in rows)

    def _check_validation(self) -> None:
        needed = self.config.rounds.validated
        if needed is None:
            return
        rows = self.run_.read(CAPTIONS, ["split", "status"]).to_pylist()
        if self.config.mining.split == "validation" or not any(
            row["split"] == "validation" and row["status"] == OK for row in rows
        ):
            raise RunError(
                f"rounds.{needed} compares rounds on the validation split, and there is none that is not trained on: "
                f"add data.validation, or take out rounds.{needed}"
            )


def _known_edits(config: Config) -> bool:
    """Whether edited pictures carry their scenes, by which they can be held against the world's truth."""
    return config.edit.image_editor in ("none", "scene")


def _templates(config: Config) -> tuple[str, ...]:
    guard = config.rounds.zeroshot
    return TEMPLATES if guard is None or guard.templates is None else read_templates(Path(guard.templates))
