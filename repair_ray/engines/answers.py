"""Answers of models, kept for ever: one call a question, whatever is killed, done again, or asked in a later round.

A store is a folder of JSON-lines files. Each writer appends to a file of its own, a line an answer, so that writers on
many machines need no lock, and a line that was cut by a crash is left out by its readers.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, TextIO

from repair_ray.config import LanguageConfig
from repair_ray.engines.tasks import AnswerError

ANSWERED = "ok"
FAILED = "error"
# At 0 a model would only repeat itself.
_SECOND_TEMPERATURE = 0.5


def second_try(language: LanguageConfig) -> LanguageConfig:
    """How an answer that could not be used is asked for once more: with another seed and some temperature."""
    temperature = max(language.temperature, _SECOND_TEMPERATURE)
    return language.model_copy(update={"seed": language.seed + 1, "temperature": temperature})


@dataclass(frozen=True)
class Answered:
    """What became of one question. `text` is the raw answer; `reason` says why there is none that can be used.

    `calls` counts the requests that were made for it, with those that an endpoint refused; tokens are summed over
    them; `seconds` is the latency of all of them together. `at` is when it came, in seconds since 1970.
    """

    question_id: str
    text: str | None = None
    status: str = ANSWERED
    reason: str | None = None
    calls: int = 1
    input_tokens: int = 0
    output_tokens: int = 0
    seconds: float = 0.0
    at: float = field(default_factory=lambda: round(time.time(), 3))

    def after(self, first: Answered) -> Answered:
        """This answer to a second try, with what the first one took added."""
        return replace(self, **{name: getattr(first, name) + getattr(self, name) for name in _SUMMED})

    def judged(self, cut: bool, check: Callable[[str], object]) -> Answered:
        """The answer with its status: failed where it was cut, or where `check` raises `AnswerError`."""
        if cut:
            return replace(self, status=FAILED, reason="cut at max_tokens")
        try:
            check(self.text or "")
        except AnswerError as error:
            return replace(self, status=FAILED, reason=str(error))
        return self


_SUMMED = ("calls", "input_tokens", "output_tokens", "seconds")


@dataclass
class AnswerStore:
    """Reads all answers of a folder, and adds to them. The last line of a question wins."""

    folder: Path
    _found: dict[str, Answered] = field(default_factory=dict)
    _file: TextIO | None = None

    def __post_init__(self) -> None:
        self.folder = Path(self.folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        for path in sorted(self.folder.glob("*.jsonl")):
            self._found |= {answer.question_id: answer for answer in _read(path)}

    def get(self, question_id: str) -> Answered | None:
        """The answer to a question, or None."""
        return self._found.get(question_id)

    def put(self, answer: Answered) -> None:
        """Keep an answer; it is on its way to the disk when this returns."""
        if self._file is None:
            name = f"{os.uname().nodename}-{os.getpid()}-{uuid.uuid4().hex[:8]}.jsonl"
            self._file = (self.folder / name).open("a", encoding="utf-8")
        self._found[answer.question_id] = answer
        self._file.write(json.dumps(asdict(answer), ensure_ascii=True) + "\n")
        self._file.flush()

    def missing(self, question_ids: Iterable[str]) -> list[str]:
        """The questions that have no answer yet, each once, in their order."""
        return [question for question in dict.fromkeys(question_ids) if question not in self._found]


def _read(path: Path) -> Iterable[Answered]:
    with path.open(encoding="utf-8") as file:
        for line in file:
            if not line.endswith("\n"):
                continue  # being written, or cut by a crash
            try:
                fields: dict[str, Any] = json.loads(line)
                yield Answered(**fields)
            except (ValueError, TypeError):
                continue
