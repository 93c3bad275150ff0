"""Paraphrase: other words for captions, as further positives of their pictures (as LaCLIP; strategy `paraphrase`)."""

from __future__ import annotations

from functools import cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from repair_ray import tables
from repair_ray.config import Config, LanguageConfig
from repair_ray.data.text import text_key
from repair_ray.engines.recorded import PARAPHRASE
from repair_ray.engines.tasks import AnswerError
from repair_ray.run import CAPTIONS, IMAGES, Recipe, Run
from repair_ray.stages.ask import ask, with_answers
from repair_ray.stages.cases import language_case, make_cases
from repair_ray.stages.graph import Progress, Step, quiet, run_graph
from repair_ray.stages.pools import cpu_pool
from repair_ray.stages.questions import RowLanguage, recipe_of
from repair_ray.stages.rows import Row, RowStage


class ParaphraseCaptions(RowStage):
    """Asks the language backend for another way to say each caption."""

    def setup(self, language: dict[str, Any]) -> None:
        self._language = RowLanguage(LanguageConfig.model_validate(language))

    def process(self, rows: list[Row]) -> list[Row]:
        return [self._paraphrase(row) for row in rows]

    def _paraphrase(self, row: Row) -> Row:
        row = {**row, "kind": tables.PARAPHRASE}
        try:
            drafts = self._language.of(row).paraphrase(language_case(row), 1)
        except AnswerError as error:
            return self.failed(row, str(error))
        taken = {text_key(caption) for caption in row["query_captions"]}
        usable = [draft for draft in drafts if text_key(draft) not in taken]
        if not usable:
            return {**row, "status": tables.REJECTED, "reason": "no other way to say it was found"}
        return {**row, "text": usable[0], "status": tables.OK}


def paraphrase(run: Run, config: Config, product: str, progress: Progress = quiet) -> None:
    """Make an `edits` table of kind `paraphrase`: captions of the mined split, at most `mining.budget` of them."""
    language = config.edit.language or config.language
    budget, split = config.mining.budget, config.mining.split

    @cache
    def cases() -> pa.Table:
        return make_cases(run, _drawn(run, split, config.seed, budget), split)

    def asked_of(row: Row) -> str:
        return PARAPHRASE

    asked = ask(run, config, language, product, cases, asked_of, (IMAGES, CAPTIONS), progress=progress)
    settings = {
        "language": recipe_of(language),
        "mining": {"budget": budget, "split": split},
        "seed": config.seed,
    }
    run_graph(
        run,
        product,
        Recipe(settings, (IMAGES, CAPTIONS, *asked)),
        tables.EDITS,
        [
            Step(
                ParaphraseCaptions,
                tables.EDITS.schema,
                {"language": language.model_dump(mode="json")},
                *cpu_pool(config),
            )
        ],
        lambda: with_answers(run, language, asked, cases(), asked_of),
        faults=config.faults,
        cluster=config.cluster,
        progress=progress,
    )


def _drawn(run: Run, split: str, seed: int, budget: int | None) -> list[Row]:
    """Captions of a split with their own pictures, as cases of `t2i`; drawn by `seed` where there is a budget."""
    captions = run.read(CAPTIONS)
    usable = captions.filter(pc.and_(pc.equal(captions["split"], split), pc.equal(captions["status"], tables.OK)))
    rows = [
        {
            "failure_id": tables.row_id(tables.PARAPHRASE, row["caption_id"]),
            "direction": "t2i",
            "query_id": row["caption_id"],
            "candidate_id": row["image_id"],
            "ground_truth_id": row["image_id"],
        }
        for row in usable.to_pylist()
    ]
    return sorted(rows, key=lambda row: tables.row_id(seed, row["failure_id"]))[:budget]
