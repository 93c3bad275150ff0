"""The main job: base, mine, audit, edit, train, evaluate, and the controls beside it.

Each line of `Round.run` makes one product of the run directory, or finds it ready. Nothing here knows a model, a
column's meaning or a Ray option.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from repair_ray import tables
from repair_ray.config import Config, ObjectiveConfig, Strategy
from repair_ray.data.access import image_store
from repair_ray.engines.retriever import named_spec, weights_identity
from repair_ray.evaluation.truth import measure_truth
from repair_ray.finetune import PLAIN, Retriever, check_retriever, finetune, named_retriever
from repair_ray.run import CAPTIONS, IMAGES, Run, RunError, read_json, write_json
from repair_ray.stages.audit import audit
from repair_ray.stages.data import WORLD, make_data
from repair_ray.stages.duplicates import find_near_embeddings
from repair_ray.stages.edit import edit
from repair_ray.stages.embed import embed
from repair_ray.stages.evaluate import evaluate
from repair_ray.stages.graph import Progress, quiet, start_ray
from repair_ray.stages.mine import fold_of, mine
from repair_ray.stages.paraphrase import paraphrase
from repair_ray.stages.pools import Pool, pool_of
from repair_ray.stages.products import BASE, OF_EDITS, OF_FAILURES, OF_VERDICTS, ROUND, TEACHER, agree
from repair_ray.stages.sources import sources_of
from repair_ray.summary import make_summary
from repair_ray.synthesis.negatives import negative_captions
from repair_ray.synthesis.strategies import merged_failures, paired_edits, random_failures
from repair_ray.synthesis.teacher import read_features
from repair_ray.synthesis.triplet import triplets
from repair_ray.training.job import HISTORY

CONFIG = "config.json"


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
        make_data(self.run_, config, self.progress)
        base = self._base()
        self._embed(f"{ROUND}/embeddings", base, tuple(dict.fromkeys((config.mining.split, config.evaluation.split))))
        find_near_embeddings(
            self.run_, config, f"{ROUND}/near_pictures", f"{ROUND}/embeddings", self.config.trained_splits
        )
        evaluate(self.run_, config, "base/metrics", f"{ROUND}/embeddings")
        self._variant(ROUND, config, base)
        for control in config.control_names:
            self._control(control, base)
        if config.data.world is not None and config.strategy in ("repair", "error_agnostic"):
            measure_truth(self.run_, ROUND, image_store(self.run_.folder, config.data))
        self._write_config()
        return make_summary(self.run_, config, ROUND)

    def _write_config(self) -> None:
        write_json(self.run_.folder / CONFIG, self.config.model_dump(mode="json"))

    def _base(self) -> Retriever:
        """The retriever that is repaired: trained here first, or as the config names it."""
        named, training = named_retriever(self.config), self.config.base
        if training is None:
            return named
        return finetune(self.run_, self.config, BASE, named, training, progress=self.progress)

    def _embed(self, product: str, retriever: Retriever, splits: tuple[str, ...], pool: Pool | None = None) -> None:
        embed(
            self.run_,
            self.config,
            product,
            retriever.spec,
            splits,
            retriever.parents,
            weights=retriever.weights,
            pool=pool,
            progress=self.progress,
        )

    def _control(self, control: str, base: Retriever) -> None:
        """One control beside the round, from the same base: the round with other settings."""
        config = self.config.control(control)
        if control != "vanilla_equal_compute":
            self._variant(f"controls/{control}", config, base)
            return
        # As many images and texts encoded as the repair run did, in batches of the same size.
        record = read_json(self.run_.path(f"{ROUND}/training") / HISTORY) or {}
        batch = min(config.training.batch_size, self._training_images())
        steps = max(1, round(record["items_encoded"] / (2 * batch)))
        same = config.model_copy(update={"training": config.training.model_copy(update={"steps": steps})})
        self._variant(f"controls/{control}", same, base, measure=(f"{ROUND}/training",))

    def _variant(self, place: str, config: Config, base: Retriever, measure: tuple[str, ...] = ()) -> None:
        """Synthesise, train and evaluate as a config says; `measure`: what the training's length was taken from."""
        edits = self._synthesise(place, config, base)
        if edits is not None:
            self._check_repaired(edits)
        if config.objective.taught:
            self._teach()
        repaired = finetune(
            self.run_,
            config,
            f"{place}/training",
            base,
            config.training,
            objective=config.objective if edits else _without_pairs(config.objective),
            edits=edits,
            splits=self.config.trained_splits,
            measure=measure,
            progress=self.progress,
        )
        self._embed(f"{place}/evaluation", repaired, (self.config.evaluation.split,))
        evaluate(self.run_, self.config, f"{place}/metrics", f"{place}/evaluation")

    def _teach(self) -> None:
        """The teacher's features of what is trained on."""
        teacher, splits = self.config.teacher, self.config.trained_splits
        assert teacher is not None  # the config has been refused without
        if teacher.features is not None:
            read_features(self.run_, TEACHER, teacher.features, splits)
        elif teacher.retriever is not None:
            named = teacher.retriever
            spec = named_spec(named.model, named.pretrained, named.precision)
            found = Retriever(spec, weights=weights_identity(spec.weights))
            self._embed(TEACHER, found, splits, pool_of(self.config, "teacher"))

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

    def _synthesise(self, place: str, config: Config, base: Retriever) -> str | None:
        """The edits that a config's strategy makes, the round's own where it would make the same; None for none."""
        run, strategy, embeddings = self.run_, config.strategy, f"{ROUND}/embeddings"
        if strategy == "vanilla":
            return None
        edits = self._shared("edits", place, config, OF_EDITS)
        if strategy in ("negclip", "san", "triplet"):
            self._contrast(edits, config, base)
            return edits
        if strategy == "paraphrase":
            paraphrase(run, config, edits, self.progress)
            return edits
        failures = self._shared("failures", place, config, OF_FAILURES)
        self._mine(failures, config, embeddings)
        self._check_mined(failures)
        verdicts = self._shared("verdicts", place, config, OF_VERDICTS)
        if strategy == "error_agnostic":
            random = self._shared("random_failures", place, config, (*OF_FAILURES, "strategy"))
            random_failures(run, config, random, failures)
            failures, verdicts = random, self._shared("random_verdicts", place, config, (*OF_VERDICTS, "strategy"))
        audit(run, config, verdicts, failures, self.progress)
        if strategy == "mined":
            paired_edits(run, config, edits, failures, verdicts)
        else:
            edit(run, config, edits, verdicts, failures, embeddings, base.spec, self.progress)
        return edits

    def _contrast(self, edits: str, config: Config, base: Retriever) -> None:
        """Negative captions, and for triplets their pictures."""
        pictured = config.strategy == "triplet"
        negatives = f"{edits}_negatives" if pictured else edits
        words: Strategy = "san" if pictured else config.strategy
        negative_captions(
            self.run_, config, negatives, words, base.spec, base.parents, base.weights, progress=self.progress
        )
        if pictured:
            triplets(self.run_, config, edits, negatives, self.progress)

    def _shared(self, name: str, place: str, config: Config, sections: tuple[str, ...]) -> str:
        """The round's product of that name, if a config agrees with the round in these sections; else its own."""
        return f"{ROUND if agree(config, self.config, sections) else place}/{name}"

    def _mine(self, failures: str, config: Config, embeddings: str) -> None:
        if not config.mining.folds:
            mine(self.run_, config, failures, embeddings, progress=self.progress)
            return
        parts = [self._mine_fold(fold, config, failures) for fold in range(config.mining.folds)]
        merged_failures(self.run_, config, failures, parts)

    def _mine_fold(self, fold: int, config: Config, failures: str) -> str:
        """Mine one fold with a retriever that was trained on the others; its failures lie below those of all folds."""
        place, split = f"folds/{fold}", self.config.mining.split
        images = self.run_.read(IMAGES, ["image_id", "group_id", "split"]).to_pylist()
        captions = self.run_.read(CAPTIONS, ["caption_id", "group_id", "split"]).to_pylist()
        inside = [
            row.get("image_id") or row["caption_id"]
            for row in images + captions
            if row["split"] == split and fold_of(row["group_id"], config.mining.folds) == fold
        ]
        trained = finetune(
            self.run_,
            self.config,
            f"{place}/training",
            named_retriever(self.config),
            self.config.base or self.config.training,
            leave_out=frozenset(inside),
            progress=self.progress,
        )
        self._embed(f"{place}/embeddings", trained, (split,))
        # The budget is for all folds together.
        whole = config.model_copy(update={"mining": config.mining.model_copy(update={"budget": None})})
        part = f"{failures.rpartition('/')[0]}/folds/{fold}/failures"
        mine(self.run_, whole, part, f"{place}/embeddings", ids=inside, progress=self.progress)
        return part

    def _training_images(self) -> int:
        rows = self.run_.read(IMAGES, ["split", "status"]).to_pylist()
        splits = self.config.trained_splits
        return sum(row["split"] in splits and row["status"] == tables.OK for row in rows)


def _without_pairs(objective: ObjectiveConfig) -> ObjectiveConfig:
    """The terms that need no hard pair, for fine-tuning on anchors alone."""
    plain = {name: getattr(PLAIN, name) for name in ("placement", "local_weight", "local_scale", "fine_grained")}
    return objective.model_copy(update=plain)


def _reasons(manifest: dict[str, Any]) -> str:
    """Up to five reasons of a table's rejects and errors, with their counts."""
    return "; ".join(f"{count} x {reason}" for reason, count in list(manifest["reasons"].items())[:5])
