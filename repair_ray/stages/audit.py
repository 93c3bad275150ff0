"""Audit: is the ground truth right, and is the false positive really wrong? (methods, section 1, step 2)"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from functools import cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from repair_ray import tables
from repair_ray.config import Config, LanguageConfig
from repair_ray.engines.recorded import AUDIT
from repair_ray.engines.tasks import AnswerError
from repair_ray.run import Recipe, Run
from repair_ray.stages.ask import ask, with_answers
from repair_ray.stages.cases import language_case, make_cases
from repair_ray.stages.graph import Progress, Step, quiet, run_graph
from repair_ray.stages.pools import cpu_pool
from repair_ray.stages.questions import RowLanguage, recipe_of
from repair_ray.stages.rows import Row, RowStage

VALID = "valid"


class AuditFailures(RowStage):
    """Asks the language backend about each failure. Only `valid` goes on; other judgements reject it."""

    def setup(self, language: dict[str, Any]) -> None:
        self._language = RowLanguage(LanguageConfig.model_validate(language))

    def process(self, rows: list[Row]) -> list[Row]:
        return [self._audit(row) for row in rows]

    def _audit(self, row: Row) -> Row:
        try:
            backend = self._language.of(row)
            verdict = backend.audit(language_case(row))
        except AnswerError as error:
            return self.failed(row, str(error))
        valid = verdict.judgement == VALID
        return {
            **row,
            "judgement": verdict.judgement,
            "mismatches": [asdict(mismatch) for mismatch in verdict.mismatches],
            "confidence": verdict.confidence,
            "judge": backend.name,
            "status": tables.OK if valid else tables.REJECTED,
            "reason": None if valid else verdict.judgement,
            "explanation": verdict.reason,
        }


def audit(
    run: Run, config: Config, product: str, failures: str, progress: Progress = quiet, examples: str | None = None
) -> None:
    """Make a `verdicts` table: one row a failure; `examples`: the product that the judge is shown first."""

    @cache
    def cases() -> pa.Table:
        table = run.read(failures)
        return make_cases(run, table.filter(pc.equal(table["status"], tables.OK)).to_pylist(), config.mining.split)

    judge(run, config, product, cases, AUDIT, (failures,), progress, examples)


def judge(
    run: Run,
    config: Config,
    product: str,
    cases: Callable[[], pa.Table],
    question: str,
    parents: tuple[str, ...],
    progress: Progress,
    examples: str | None = None,
) -> None:
    """Make a `verdicts` table of `CASES`, with the task `question`, whose answers are those of the audit."""
    language = judge_of(config)
    parents = (*parents, *([examples] if examples else ()))
    asked = ask(
        run, config, language, product, cases, lambda _: question, parents, examples=examples, progress=progress
    )
    run_graph(
        run,
        product,
        verdicts_recipe(language, parents, asked),
        tables.VERDICTS,
        [
            Step(
                AuditFailures,
                tables.VERDICTS.schema,
                {"language": language.model_dump(mode="json")},
                *cpu_pool(config),
            )
        ],
        lambda: with_answers(run, language, asked, cases(), lambda _: question, examples),
        faults=config.faults,
        cluster=config.cluster,
        progress=progress,
    )


def judge_of(config: Config) -> LanguageConfig:
    """Who audits."""
    return config.audit.language or config.language


def examples_product(verdicts: str) -> str:
    """The product of the examples that the judge is shown for these verdicts, where it is shown any."""
    return f"{verdicts}_examples"


def shown_examples(run: Run, verdicts: str) -> str | None:
    """The examples that finished verdicts were made with; None where they were made without."""
    product = examples_product(verdicts)
    return product if product in (run.parents(verdicts) or ()) else None


def verdicts_recipe(language: LanguageConfig, parents: tuple[str, ...], asked: tuple[str, ...]) -> Recipe:
    """What verdicts are made from; `asked`: the products of answers, where a model was asked."""
    return Recipe({"language": recipe_of(language)}, (*parents, *asked))
