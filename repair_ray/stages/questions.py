"""One question about a case: how it is put to a model, what makes it the same question, who answered it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from PIL import Image

from repair_ray import tables
from repair_ray.config import DataConfig, LanguageConfig
from repair_ray.data.access import image_store
from repair_ray.data.store import ImageStore
from repair_ray.engines.language import LanguageBackend
from repair_ray.engines.recorded import RecordedLanguage
from repair_ray.engines.registry import language_backend
from repair_ray.engines.tasks import AnswerError, Limits, Prompt, task
from repair_ray.engines.tasks.examples import Example, with_examples
from repair_ray.plugins import JUDGES, identity
from repair_ray.stages.cases import language_case, mismatches_of
from repair_ray.stages.rows import Row


@dataclass(frozen=True)
class Asked:
    """How questions are put to a model: plain values, which travel to the workers.

    `examples`: rows of an `examples` table, which come before each question.
    """

    folder: str
    data: dict[str, Any]
    language: dict[str, Any]
    answers: str
    examples: tuple[Row, ...] = ()

    @cached_property
    def config(self) -> LanguageConfig:
        return LanguageConfig.model_validate(self.language)

    @cached_property
    def limits(self) -> Limits:
        return limits_of(self.config)

    def prompt(self, row: Row) -> Prompt:
        """The messages of a question."""
        return with_examples(task(row["task"]).prompt(language_case(row), self.config.view, self.limits), self._shown)

    def pictures(self, row: Row, prompt: Prompt) -> list[Image.Image]:
        """The pictures of a question: upright RGB, as the encoder sees them, within `language.image_px`.

        Raises:
            ImageProblem: one cannot be read.
        """
        found = []
        for role in prompt.images:
            picture = self._store.rgb(*(row[f"{role}_{part}"] for part in ("uri", "offset", "length")))
            picture.thumbnail((self.config.image_px, self.config.image_px), Image.Resampling.LANCZOS)
            found.append(picture)
        return found

    def check(self, row: Row, text: str) -> None:
        """Raises `AnswerError` for an answer that the stage could not use."""
        task(row["task"]).read(text, language_case(row), self.limits)

    @cached_property
    def _shown(self) -> tuple[Example, ...]:
        return tuple(example_of(row) for row in self.examples)

    @cached_property
    def _store(self) -> ImageStore:
        return image_store(self.folder, DataConfig.model_validate(self.data))


def limits_of(language: LanguageConfig) -> Limits:
    """The limits that the config sets for answers."""
    return Limits(language.max_changes, language.drafts, language.min_confidence)


def example_of(row: Row) -> Example:
    """A row of an `examples` table as the language tasks take it."""
    return Example(language_case(row), row["judgement"], mismatches_of(row))


def question_id(row: Row, language: LanguageConfig, examples: Sequence[Example] = ()) -> str:
    """What makes two questions the same: model, prompt, schema, sampling, and what is shown, to the pixel.

    `examples` come before the question, as a part of the prompt.
    """
    asked = task(row["task"])
    prompt = with_examples(asked.prompt(language_case(row), language.view, limits_of(language)), examples)
    sampling = (language.temperature, language.top_p, language.max_tokens, language.seed)
    model = (language.model, language.engine.lora, language.engine.template, language.endpoint.form)
    pictures = [row[f"{role}_pixels"] for role in prompt.images]
    shown = (prompt.system, prompt.user, pictures, language.image_px if pictures else None)
    return tables.row_id(json.dumps([model, asked.version, sampling, shown], sort_keys=True))


class RowLanguage:
    """The language backend of each row of a stage: one for all of them, or the row's own recorded answer."""

    def __init__(self, language: LanguageConfig) -> None:
        self._direct = language_backend(language)
        self._name = language.model or language.backend
        self._limits = limits_of(language)

    def of(self, row: Row) -> LanguageBackend:
        """Raises `AnswerError` where no usable answer was given."""
        if self._direct is not None:
            return self._direct
        if row["answer_status"] != tables.OK or row["answer"] is None:
            raise AnswerError(row["answer_reason"] or "nobody was asked")
        return RecordedLanguage(self._name, row["answer"], self._limits)


def recipe_of(language: LanguageConfig) -> dict[str, Any]:
    """The language settings that decide what comes out; how fast and where it is asked does not."""
    return {
        **language.model_dump(mode="json", exclude={"pool", "endpoint", "engine", "price", "answers"}),
        "lora": language.engine.lora,
        "template": language.engine.template,
        **identity(JUDGES, language.backend),
    }
