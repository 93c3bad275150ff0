"""SAN on clip features as one job: base, prototypes, negatives, training with them, controls, both kinds of figures.

Each line of `ClipRound.run` makes products of the run directory, or finds them ready. One process, no Ray: the features
are computed already, and what is trained on them is small.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from repair_ray import tables
from repair_ray.clips.negatives import caption_id, clip_negatives, stress_set
from repair_ray.config import NegativesConfig
from repair_ray.data.clips import ClipSet, read_clips
from repair_ray.engines.clip_tower import WEIGHTS, ClipArchitecture, ClipRetriever, lemmas_of
from repair_ray.engines.retriever import weights_identity
from repair_ray.engines.words import language
from repair_ray.evaluation import stress
from repair_ray.observing.heartbeat import Heartbeat
from repair_ray.run import Recipe, Run, write_json
from repair_ray.sections.clips import ClipsConfig, ClipTrainingConfig
from repair_ray.stages.sources import source_digest
from repair_ray.training.clips import FineTerm, Pair, clip_metrics, train_clips
from repair_ray.world.clips import CLIPS, make_clips

DATA, WORLD, BASE, STRESS = "data/clips", "data/world", "base/training", "stress"
OTHER, ORACLE = "oracle/clips", "oracle/training"  # other features of the same clips, and what is trained on them
SET_FILE = "stress_set.jsonl"

Tell = Callable[[str, int, int], None]


def run_clips(config: ClipsConfig, *, redo: Sequence[str] = (), tell: Tell | None = None) -> dict[str, Any]:
    """Run the whole job of a config, or go on with it; returns what `summary.json` holds.

    Raises:
        RunError, DataError, RetrieverError: with a message for the person who started it.
    """
    run = Run(Path(config.output) / config.name)
    with run.locked(), Heartbeat(run.folder):
        for stage in redo:
            run.redo(stage)
        summary = ClipRound(run, config, tell or (lambda product, done, total: None)).run()
        write_json(run.folder / "summary.json", summary)
        return summary


@dataclass
class ClipRound:
    """One run of SAN with its controls."""

    run_: Run
    config: ClipsConfig
    tell: Tell
    _sets: dict[str, ClipSet] = field(default_factory=dict)

    def run(self) -> dict[str, Any]:
        config = self.config
        self._world()
        self._data(DATA, self._path)
        base = self._train(BASE, DATA, config.base)
        trained = {"base": BASE}
        for name in ("san", *config.controls):
            place = name if name == "san" else f"controls/{name}"
            section = config.negatives_of(name)
            negatives = None
            if section is not None:
                section = self._with_lists(section)
                negatives = clip_negatives(self.run_, self._clips(DATA), place, section, config.seed, base, BASE, DATA)
            trained[name] = f"{place}/training"
            self._train(trained[name], DATA, config.training, start=BASE, negatives=negatives)
        questions = self._stress_set()
        found = {name: self._measure(product, questions) for name, product in trained.items()}
        manifest = self.run_.manifest(STRESS) or {}
        return {
            "name": config.name,
            "config": config.model_dump(mode="json"),
            "clips": (self.run_.manifest(DATA) or {})["clips"],
            "split": config.split,
            "oracle": questions.oracle,
            "circular": manifest["circular"],
            "left_out": questions.left_out,
            "variants": found,
        }

    def _with_lists(self, section: NegativesConfig) -> NegativesConfig:
        return section.model_copy(
            update={name: self._listed(getattr(section, name)) for name in ("confusable", "same")}
        )

    def _listed(self, path: str | None) -> str | None:
        """A list of pairs that the config names; one of the made world's own by its bare name."""
        if path is None or self.config.data.world is None or not self.run_.path(f"{WORLD}/{path}").is_file():
            return path
        return str(self.run_.path(f"{WORLD}/{path}"))

    @property
    def _path(self) -> str:
        data = self.config.data
        return str(self.run_.path(WORLD) / CLIPS) if data.path is None else data.path

    def _world(self) -> None:
        world = self.config.data.world
        recipe = Recipe({"world": None if world is None else world.model_dump(mode="json")})
        if world is None or self.run_.ready(WORLD, recipe):
            return
        start = time.monotonic()
        make_clips(self.run_.path(WORLD), world.language, world.train, world.validation, world.test, world.seed)
        self.run_.finish(WORLD, recipe, time.monotonic() - start)

    def _data(self, product: str, path: str) -> None:
        """The table of all clips; rows that cannot be used are rejected ones."""
        data, made_here = self.config.data, product == DATA and self.config.data.world is not None
        files = {"path": source_digest(path)} if not made_here else {}
        if product == DATA and data.captions is not None:
            files["captions"] = source_digest(data.captions)
        recipe = Recipe({"files": files}, (WORLD,) if made_here else () if product == DATA else (DATA,))
        if self.run_.ready(product, recipe):
            return
        start = time.monotonic()
        found = self._clips(product)
        rows: list[dict[str, Any]] = [
            {
                "clip_id": clip.clip_id,
                "split": clip.split,
                "captions": list(clip.captions),
                "frames": len(clip.features),
                "status": tables.OK,
            }
            for clip in found.clips
        ]
        for number, problem in enumerate(found.problems):
            identity = tables.row_id("problem", number, problem.source)
            told = {"status": tables.REJECTED, "reason": problem.reason}
            rows.append({"clip_id": identity, "source": f"{problem.source}: {problem.detail}", **told})
        splits = {name: sum(clip.split == name for clip in found.clips) for name in ("train", "validation", "test")}
        facts = {"splits": splits, "width": found.width, "problems": found.reasons()}
        table = tables.to_table(rows, tables.CLIPS.schema)
        self.run_.commit(product, recipe, tables.CLIPS, table, time.monotonic() - start, clips=facts)

    def _clips(self, product: str) -> ClipSet:
        """The clips of a data product, read once a process."""
        if product not in self._sets:
            if product == DATA:
                self._sets[product] = read_clips(self._path, self.config.data.captions)
            else:
                self._sets[product] = read_clips(str(self.config.stress.features), like=self._clips(DATA))
        return self._sets[product]

    def _train(
        self,
        product: str,
        data: str,
        training: ClipTrainingConfig,
        start: str | None = None,
        negatives: str | None = None,
    ) -> ClipRetriever:
        """A retriever on the training split, from scratch or from another, with negatives where there are any."""
        config, folder = self.config, self.run_.path(product)
        outcome = training.model_dump(mode="json", exclude={"use_gpu"})
        settings: dict[str, Any] = {"training": outcome, "seed": config.seed}
        if start is None:
            settings["tower"] = config.tower.model_dump(mode="json", exclude={"pretrained"})
            settings["tower"]["weights"] = weights_identity(config.tower.pretrained)
            settings["language"] = config.negatives.language
        if negatives is not None:
            settings["fine_grained"] = config.fine_grained.model_dump(mode="json")
        recipe = Recipe(settings, (data, *(name for name in (start, negatives) if name is not None)))
        if not self.run_.ready(product, recipe):
            begun = time.monotonic()
            clips = self._clips(data)
            retriever = self._fresh(clips) if start is None else ClipRetriever.load(self.run_.path(start))
            there = any(clip.split == "validation" for clip in clips.clips)
            record = train_clips(
                retriever,
                clips.of("train"),
                training,
                fine=None if negatives is None else self._fine(clips, negatives),
                validation=clips.of("validation") if there else (),
                seed=config.seed,
                tell=lambda done, total: self.tell(product, done, total),
            )
            retriever.save(folder)
            self.run_.finish(product, recipe, time.monotonic() - begun, training=record)
        return ClipRetriever.load(folder)

    def _fresh(self, clips: ClipSet) -> ClipRetriever:
        tower, name = self.config.tower, self.config.negatives.language
        lemmas: set[str] = set()
        if tower.text == "words":
            words = language(name)
            lemmas = {lemma for c in clips.of("train") for text in c.captions for lemma in lemmas_of(text, words)}
        return ClipRetriever(
            ClipArchitecture(
                clips.width,
                tower.embed,
                tower.layers,
                tower.heads,
                tower.text,
                tower.pretrained,
                name,
                tuple(sorted(lemmas)),
            ),
            self.config.seed,
        )

    def _fine(self, clips: ClipSet, negatives: str) -> FineTerm:
        places: dict[str, Pair] = {
            caption_id(clip.clip_id, number): (place, number)
            for place, clip in enumerate(clips.of("train"))
            for number in range(len(clip.captions))
        }
        found: dict[Pair, list[str]] = {}
        for row in self.run_.read(negatives).to_pylist():
            if row["status"] == tables.OK:
                found.setdefault(places[row["candidate_id"]], []).append(row["text"])
        return FineTerm(found, self.config.fine_grained.negatives, self.config.fine_grained.weight)

    def _stress_set(self) -> stress.StressSet:
        """The questions, by a list, by an oracle trained on other features, or (circular) by the base itself."""
        config, section = self.config, self.config.stress
        oracle, data = BASE, DATA
        if section.features is not None:
            oracle, data = ORACLE, OTHER
            self._data(data, section.features)
            self._train(ORACLE, data, config.base)
        listed = self._listed(section.confusable)
        parents = (DATA,) if listed is not None else (DATA, data, oracle)
        negatives = self._with_lists(config.negatives)
        return stress_set(
            self.run_,
            STRESS,
            SET_FILE,
            config,
            negatives,
            self._clips(DATA),
            self._clips(data),
            listed,
            oracle,
            parents,
        )

    def _measure(self, training: str, questions: stress.StressSet) -> dict[str, Any]:
        """Coarse and fine-grained figures of one retriever."""
        config, product = self.config, training.replace("/training", "/metrics")
        recipe = Recipe({"split": config.split, "bootstrap": config.bootstrap, "seed": config.seed}, (training, STRESS))
        if not self.run_.ready(product, recipe):
            begun = time.monotonic()
            retriever, clips = ClipRetriever.load(self.run_.path(training)), self._clips(DATA).of(config.split)
            chance = {"bootstrap": config.bootstrap, "seed": config.seed}
            found = {
                **clip_metrics(retriever, clips, **chance),
                "fine": stress.ask(
                    questions,
                    {clip.clip_id: n for n, clip in enumerate(clips)},
                    retriever.encode_clips([clip.features for clip in clips]),
                    retriever.encode_texts,
                    **chance,
                ),
            }
            facts = {"weights": weights_identity(str(self.run_.path(training) / WEIGHTS)), "metrics": found}
            self.run_.finish(product, recipe, time.monotonic() - begun, **facts)
        return dict((self.run_.manifest(product) or {})["metrics"])
