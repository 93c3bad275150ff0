"""One round of repair: mine, synthesise, train, evaluate; and its controls, which are rounds with other settings.

Each step makes a product of the run directory, or finds it ready. Nothing here knows a model, a column's meaning or a
Ray option.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from repair_ray import tables
from repair_ray.config import Config, ObjectiveConfig, Strategy
from repair_ray.engines.retriever import named_spec, weights_identity
from repair_ray.finetune import PLAIN, Retriever, finetune, named_retriever
from repair_ray.repair_review.examples import make_examples
from repair_ray.repair_review.refusals import Refusals
from repair_ray.run import CAPTIONS, IMAGES, Run, RunError
from repair_ray.stages.audit import audit, examples_product
from repair_ray.stages.drafts import draft_corrections, draft_negatives
from repair_ray.stages.edit import edit
from repair_ray.stages.embed import embed
from repair_ray.stages.evaluate import evaluate
from repair_ray.stages.graph import Progress
from repair_ray.stages.mine import Worked, fold_of, mine
from repair_ray.stages.paraphrase import paraphrase
from repair_ray.stages.pools import Pool, pool_of
from repair_ray.stages.products import OF_EDITS, OF_FAILURES, OF_VERDICTS, ROUND, TEACHER, agree, round_place
from repair_ray.synthesis.negatives import negative_captions
from repair_ray.synthesis.repairs import recheck
from repair_ray.synthesis.strategies import merged_failures, paired_edits, random_failures
from repair_ray.synthesis.teacher import read_features
from repair_ray.synthesis.triplet import triplets


@dataclass
class Round:
    """A round of a run, or a control beside its first one.

    `whole`: the run's config, `config`: this one's, which differs for a control. `place`: its folder. It mines with
    `retriever` and trains from `start`, without what is refused.
    """

    run_: Run
    whole: Config
    progress: Progress
    retriever: Retriever
    start: Retriever
    config: Config
    refusals: Refusals
    place: str = ROUND
    number: int = 1

    @property
    def home(self) -> str:
        """The round whose embeddings it mines, and whose products it takes where it would make the same."""
        return round_place(self.number)

    def embed(self) -> None:
        """Features of what is mined and of what is evaluated."""
        splits = tuple(dict.fromkeys((self.whole.mining.split, self.whole.evaluation.split)))
        self._embed(f"{self.home}/embeddings", self.retriever, splits)

    def mine(self) -> str:
        """The round's failures; with earlier repairs re-checked by them, from the second round on."""
        run, config = self.run_, self.config
        failures = self._shared("failures", OF_FAILURES)
        if config.mining.folds:
            parts = [self._mine_fold(fold, failures) for fold in range(config.mining.folds)]
            merged_failures(run, config, failures, parts)
            return failures
        earlier = {number: round_place(number) for number in range(1, self.number)}
        worked = [Worked(f"{place}/verdicts", f"{place}/edits") for place in earlier.values()]
        mine(run, config, failures, f"{self.home}/embeddings", earlier=worked, progress=self.progress)
        if earlier:
            edits = {number: self.refusals.settle(run, made) for number, made in self._earlier_edits.items()}
            weight, depth = self.whole.rounds.fixed_weight, config.mining.k
            recheck(run, self._repairs, edits, failures, fixed_weight=weight, depth=depth)
        return failures

    def synthesise(self) -> str | None:
        """The edits that the config's strategy makes, the first round's where it would make the same; None for none."""
        run, config, strategy = self.run_, self.config, self.config.strategy
        if strategy == "vanilla":
            return None
        edits = self._shared("edits", OF_EDITS)
        if strategy in ("negclip", "san", "triplet"):
            self._contrast(edits)
            return edits
        if config.works_on == "captions":
            draft_negatives(run, config, edits, config.trained_splits, self.progress)
            return edits
        if strategy == "paraphrase":
            paraphrase(run, config, edits, self.progress)
            return edits
        failures = self.mine()
        self._check_mined(failures)
        verdicts = self._shared("verdicts", OF_VERDICTS)
        if strategy == "error_agnostic":
            random = self._shared("random_failures", (*OF_FAILURES, "strategy"))
            random_failures(run, config, random, failures)
            failures, verdicts = random, self._shared("random_verdicts", (*OF_VERDICTS, "strategy"))
        examples = None
        if config.audit.examples and self._earlier_edits:
            examples = make_examples(run, config, examples_product(verdicts), self._earlier_edits)
        audit(run, config, verdicts, failures, self.progress, examples)
        if strategy == "mined":
            paired_edits(run, config, edits, failures, verdicts)
        else:
            make = edit if config.works_on is None else draft_corrections
            make(run, config, edits, verdicts, failures, f"{self.home}/embeddings", self.retriever.spec, self.progress)
        return edits

    def train(self, edits: str | None, measure: tuple[str, ...] = ()) -> Retriever:
        """Train and evaluate with the edits and those of earlier rounds; `measure`: what its length was taken from.

        Raises:
            RunError: people have refused all of them.
        """
        run, config = self.run_, self.config
        if edits is not None:
            made, edits = edits, self.refusals.settle(run, edits, f"{self.place}/training")
            if edits != made:
                self.check_repaired(edits)
        if config.objective.taught:
            self._teach()
        repaired = finetune(
            run,
            config,
            f"{self.place}/training",
            self.start,
            config.training,
            objective=config.objective if edits else _without_pairs(config.objective),
            edits=(*([self._repairs] if self.number > 1 else ()), edits) if edits else (),
            splits=self.whole.trained_splits,
            measure=measure,
            progress=self.progress,
        )
        self._embed(f"{self.place}/evaluation", repaired, (self.whole.evaluation.split,))
        evaluate(run, self.whole, f"{self.place}/metrics", f"{self.place}/evaluation")
        return repaired

    def found(self, product: str) -> int:
        """Rows of a table that go on to the next step."""
        return int((self.run_.manifest(product) or {}).get("statuses", {}).get(tables.OK, 0))

    def check_repaired(self, edits: str) -> None:
        """Raises `RunError` where no edit was accepted; says why not."""
        if not self.found(edits):
            manifest = self.run_.manifest(edits) or {}
            tried = f"none of {manifest['rows']} failures gave a pair to train on"
            raise RunError(f"{edits}: {tried} ({_reasons(manifest)})")

    @property
    def _earlier_edits(self) -> dict[int, str]:
        return {number: f"{round_place(number)}/edits" for number in range(1, self.number)}

    @property
    def _repairs(self) -> str:
        return f"{self.place}/repairs"

    def _embed(self, product: str, retriever: Retriever, splits: tuple[str, ...], pool: Pool | None = None) -> None:
        embed(
            self.run_,
            self.whole,
            product,
            retriever.spec,
            splits,
            retriever.parents,
            weights=retriever.weights,
            pool=pool,
            progress=self.progress,
        )

    def _teach(self) -> None:
        """The teacher's features of what is trained on."""
        teacher, splits = self.whole.teacher, self.whole.trained_splits
        assert teacher is not None  # the config has been refused without
        if teacher.features is not None:
            read_features(self.run_, TEACHER, teacher.features, splits)
        elif teacher.retriever is not None:
            named = teacher.retriever
            spec = named_spec(named.model, named.pretrained, named.precision)
            found = Retriever(spec, weights=weights_identity(spec.weights))
            self._embed(TEACHER, found, splits, pool_of(self.whole, "teacher"))

    def _check_mined(self, failures: str) -> None:
        if not self.found(failures):
            manifest = self.run_.manifest(failures) or {}
            raise RunError(
                f"{failures}: split {self.whole.mining.split} shows no failure to repair ({_reasons(manifest)}); "
                "mine a larger split, with mining.keep=top_k, or with mining.folds"
            )

    def _contrast(self, edits: str) -> None:
        """Negative captions, and for triplets their pictures."""
        config, base = self.config, self.retriever
        pictured = config.strategy == "triplet"
        negatives = f"{edits}_negatives" if pictured else edits
        words: Strategy = "san" if pictured else config.strategy
        negative_captions(
            self.run_, config, negatives, words, base.spec, base.parents, base.weights, progress=self.progress
        )
        if pictured:
            triplets(self.run_, config, edits, negatives, self.progress)

    def _shared(self, name: str, sections: tuple[str, ...]) -> str:
        """The round's product of that name, if a config agrees with the run's in these sections; else its own."""
        return f"{self.home if agree(self.config, self.whole, sections) else self.place}/{name}"

    def _mine_fold(self, fold: int, failures: str) -> str:
        """Mine one fold with a retriever that was trained on the others; its failures lie below those of all folds."""
        config, whole = self.config, self.whole
        place, split = f"folds/{fold}", whole.mining.split
        images = self.run_.read(IMAGES, ["image_id", "group_id", "split"]).to_pylist()
        captions = self.run_.read(CAPTIONS, ["caption_id", "group_id", "split"]).to_pylist()
        inside = [
            row.get("image_id") or row["caption_id"]
            for row in images + captions
            if row["split"] == split and fold_of(row["group_id"], config.mining.folds) == fold
        ]
        trained = finetune(
            self.run_,
            whole,
            f"{place}/training",
            named_retriever(whole),
            whole.base or whole.training,
            leave_out=frozenset(inside),
            progress=self.progress,
        )
        self._embed(f"{place}/embeddings", trained, (split,))
        # The budget is for all folds together.
        unlimited = config.model_copy(update={"mining": config.mining.model_copy(update={"budget": None})})
        part = f"{failures.rpartition('/')[0]}/folds/{fold}/failures"
        mine(self.run_, unlimited, part, f"{place}/embeddings", ids=inside, progress=self.progress)
        return part


def _without_pairs(objective: ObjectiveConfig) -> ObjectiveConfig:
    """The terms that need no hard pair, for fine-tuning on anchors alone."""
    plain = {name: getattr(PLAIN, name) for name in ("placement", "local_weight", "local_scale", "fine_grained")}
    return objective.model_copy(update=plain)


def _reasons(manifest: dict[str, Any]) -> str:
    """Up to five reasons of a table's rejects and errors, with their counts."""
    return "; ".join(f"{count} x {reason}" for reason, count in list(manifest["reasons"].items())[:5])
