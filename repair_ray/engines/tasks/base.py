"""A language task: a versioned prompt over a case, the schema of its answer, and how the answer is read."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Generic, Literal, TypeVar

import jinja2

from repair_ray.engines.language import Case
from repair_ray.engines.tasks.answers import Answer, json_schema, read_json

View = Literal["captions", "images"]
Role = Literal["query", "candidate"]
R = TypeVar("R")


@dataclass(frozen=True)
class Prompt:
    """What a model is asked: both messages as text, and the pictures that come before the user's, by their roles."""

    system: str
    user: str
    images: tuple[Role, ...] = ()


@dataclass(frozen=True)
class Limits:
    """What holds for every answer of a run."""

    max_changes: int = 4
    drafts: int = 3
    min_confidence: float = 0.0


class Task(ABC, Generic[R]):
    """One question about a case. Its name is also that of its template, `prompts/<name>.j2`.

    A template has two blocks. `system` is the same for every case, so that its prefix is computed once; `user` holds
    the case, each text of it as a JSON string: what stands in a caption is data, and ends where its quotes end.
    """

    name: str
    answer: type[Answer]

    def prompt(self, case: Case, view: View, limits: Limits) -> Prompt:
        """The messages for one case."""
        values = {"case": case, "view": view, "limits": limits, **self.values(case, limits)}
        system, user = (render(self.name, block, values) for block in ("system", "user"))
        return Prompt(system, user, self.images(case) if view == "images" else ())

    def images(self, case: Case) -> tuple[Role, ...]:
        """The pictures that the `images` view shows, in this order."""
        return ("query", "candidate")

    def values(self, case: Case, limits: Limits) -> dict[str, Any]:
        """Further values of the template."""
        return {}

    def read(self, text: str, case: Case, limits: Limits) -> R:
        """The answer as what the stages use.

        Raises:
            AnswerError: the answer does not parse, or contradicts itself.
        """
        return self.result(read_json(text, self.answer), case, limits)

    @abstractmethod
    def result(self, answer: Any, case: Case, limits: Limits) -> R:
        """Check a parsed answer and turn it into the result."""

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON schema of the answer."""
        return json_schema(self.answer)

    @cached_property
    def version(self) -> str:
        """Changes when the template or the schema does: 8 hex digits."""
        sources = [_loader().get_source(_templates(), f"{name}.j2")[0] for name in (self.name, "macros")]
        parts = [*sources, json.dumps(self.schema, sort_keys=True)]
        return hashlib.sha256("\x1f".join(parts).encode()).hexdigest()[:8]


def render(name: str, block: str, values: dict[str, Any]) -> str:
    """A block of a template, without space at the ends of its lines."""
    template = _templates().get_template(f"{name}.j2")
    text = "".join(template.blocks[block](template.new_context(values)))
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


def _quoted(value: Any) -> str:
    """A text, or a list of texts, as JSON: one line, with every quote and control character escaped."""
    return json.dumps(list(value) if isinstance(value, tuple) else value, ensure_ascii=False)


def _loader() -> jinja2.BaseLoader:
    return jinja2.PackageLoader("repair_ray.engines.tasks", "prompts")


@lru_cache(maxsize=1)
def _templates() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=_loader(), undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, autoescape=False
    )
    environment.filters["quoted"] = _quoted
    return environment
