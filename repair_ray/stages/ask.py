"""Ask a model: each question of a stage gets an answer, or a reason why it has none, and is asked once in its life.

The answers of a stage are a table of their own (`round-1/verdicts_answers`), which the stage then reads. So a stage may
be done again without a call.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import jsonschema
import pyarrow as pa

from repair_ray import tables
from repair_ray.config import Config, LanguageConfig
from repair_ray.engines.answers import AnswerStore
from repair_ray.engines.tasks import task
from repair_ray.engines.tasks.examples import Example
from repair_ray.run import Recipe, Run
from repair_ray.stages.graph import Operator, Progress, Step, run_graph
from repair_ray.stages.pools import key_of
from repair_ray.stages.questions import Asked, example_of, question_id, recipe_of
from repair_ray.stages.rows import Row

ANSWERS = "answers"


def ask(
    run: Run,
    config: Config,
    language: LanguageConfig,
    product: str,
    cases: Callable[[], pa.Table],
    task_of: Callable[[Row], str | None],
    parents: tuple[str, ...],
    *,
    examples: str | None = None,
    progress: Progress,
) -> tuple[str, ...]:
    """Have the questions of a stage answered: makes `<product>_answers`, and returns its name as a further parent.

    Nothing is made for a backend that needs no model. Questions that any earlier stage, round or run with the same
    store has had answered are not asked again.

    Args:
        product: the stage that will read the answers.
        cases: its `CASES`; `task_of` says which task is asked about one, None: none.
        examples: the `examples` product that is put before each question; one of the parents.

    Raises:
        RunError: more questions without an answer than `faults.max_error_rate` allows.
    """
    if not language.asks:
        return ()
    answers = f"{product}_answers"
    recipe = Recipe({"language": recipe_of(language)}, parents)
    if run.ready(answers, recipe):
        return (answers,)
    shown = _examples(run, examples)
    questions = {row["question_id"]: row for row in _questions(cases(), language, task_of, shown)}
    for name in sorted({row["task"] for row in questions.values()}):
        # An engine may die of a schema that it cannot follow: it is checked before any engine starts.
        jsonschema.Draft202012Validator.check_schema(task(name).schema)
    store = AnswerStore(Path(language.answers) if language.answers else run.path(ANSWERS))
    missing = set(store.missing(questions))
    if not missing:
        run.commit(answers, recipe, tables.ANSWERS, _stored(store, questions), 0.0)
        return (answers,)
    asked = Asked(
        str(run.folder),
        config.data.model_dump(mode="json"),
        language.model_dump(mode="json"),
        str(store.folder),
        tuple(shown),
    )
    run_graph(
        run,
        answers,
        recipe,
        tables.ANSWERS,
        [_operator(language, key_of(config, language), asdict(asked))],
        lambda: tables.to_table([row for q, row in questions.items() if q in missing], tables.QUESTIONS),
        faults=config.faults,
        cluster=config.cluster,
        finish=lambda made: _with_stored(made, store.folder, questions),
        progress=progress,
    )
    return (answers,)


def with_answers(
    run: Run,
    language: LanguageConfig,
    answers: tuple[str, ...],
    cases: pa.Table,
    task_of: Callable[[Row], str | None],
    examples: str | None = None,
) -> pa.Table:
    """`CASES` with the answers that `ask` had made for them; as they are where nobody was asked."""
    if not answers:
        return cases
    found = {row["question_id"]: row for row in run.read(answers[0]).to_pylist()}
    rows, shown = cases.to_pylist(), _examples(run, examples)
    asked = {row["failure_id"]: row["question_id"] for row in _questions(cases, language, task_of, shown)}
    for row in rows:
        answer = found.get(asked.get(row["failure_id"], ""))
        if answer is not None:
            row["question_id"], row["answer"] = answer["question_id"], answer["answer"]
            row["answer_status"], row["answer_reason"] = answer["status"], answer["reason"]
    return tables.to_table(rows, tables.CASES)


def _examples(run: Run, product: str | None) -> list[Row]:
    return [] if product is None else list(run.read(product).to_pylist())


def _questions(
    cases: pa.Table, language: LanguageConfig, task_of: Callable[[Row], str | None], shown: list[Row]
) -> list[Row]:
    rows: list[Row] = []
    examples: list[Example] = [example_of(row) for row in shown]
    for row in cases.to_pylist():
        name = task_of(row)
        if name is not None:
            asked = {**row, "task": name}
            rows.append({**asked, "question_id": question_id(asked, language, examples)})
    return rows


def _stored(store: AnswerStore, questions: dict[str, Row], without: frozenset[str] = frozenset()) -> pa.Table:
    rows = [
        tables.answer_row(asdict(answer), row)
        for question, row in questions.items()
        if question not in without and (answer := store.get(question)) is not None
    ]
    return tables.to_table(rows, tables.ANSWERS.schema)


def _with_stored(made: pa.Table, folder: Path, questions: dict[str, Row]) -> pa.Table:
    # A run that goes on after a kill finds answers in the store that its own graph has never put out.
    there = frozenset(made["question_id"].to_pylist())
    return pa.concat_tables([made, _stored(AnswerStore(folder), questions, there)])


def _operator(language: LanguageConfig, key: str, arguments: dict[str, Any]) -> Operator:
    # Only where they are asked for: both take seconds to import.
    if language.backend == "openai":
        from repair_ray.stages.endpoint import AskEndpoint

        return Step(AskEndpoint, tables.ANSWERS.schema, arguments, language.pool.on_cpu(), f"{key}.pool")
    from repair_ray.stages.engine import EngineStep

    return EngineStep(language, arguments, key)
