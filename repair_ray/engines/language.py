"""The questions that a language model answers about one failure, and what an answer looks like.

A backend (heuristic, vLLM, an OpenAI-compatible endpoint) answers one `Case` at a time; how cases reach it is the
business of `repair_ray.stages`. Nothing here imports Ray, and nothing here knows how a backend finds its answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

Direction = Literal["i2t", "t2i"]
Judgement = Literal["valid", "benign_match", "bad_ground_truth", "unsure"]
ErrorType = Literal["object", "attribute", "count", "relation", "action", "hallucination"]


@dataclass(frozen=True)
class Case:
    """One retrieval failure as a language model sees it (methods, section 1, steps 2 and 3).

    `i2t`: an image retrieved a wrong caption. `query_captions` are the image's own captions, `candidate_text` is the
    wrong caption, `candidate_captions` are the captions of the image that owns it.
    `t2i`: a caption retrieved a wrong image. `query_text` is the caption, `query_captions` are the captions of its own
    image (the query among them), `candidate_captions` are the captions of the wrong image.
    """

    direction: Direction
    query_captions: tuple[str, ...]
    candidate_captions: tuple[str, ...]
    query_text: str | None = None
    candidate_text: str | None = None


@dataclass(frozen=True)
class Mismatch:
    """One thing that is wrong: what the query says (`query`, may be empty) and what the candidate has (`candidate`)."""

    type: ErrorType
    query: str
    candidate: str


@dataclass(frozen=True)
class Verdict:
    """Whether the false positive is truly wrong, and its residual. `confidence` lies in [0, 1]."""

    judgement: Judgement
    mismatches: tuple[Mismatch, ...] = ()
    confidence: float = 1.0
    reason: str = ""


@dataclass(frozen=True)
class Instruction:
    """The smallest edit that removes the residual, in words. An instruction that is not `feasible` says why."""

    feasible: bool
    text: str = ""
    reason: str = ""


@dataclass(frozen=True)
class Draft:
    """One edited caption. `problem` says why it cannot be used; it is kept as a rejected candidate."""

    text: str
    problem: str | None = None


class Judge(Protocol):
    """The least that a judge of another package offers: the audit. Made as `Judge(settings)`, once an actor.

    Where it is to instruct, edit or paraphrase too, it has these methods of `LanguageBackend` as well; its name is that
    of its entry point. It sees captions, as every backend that answers by itself.
    """

    def audit(self, case: Case) -> Verdict:
        """As `LanguageBackend.audit`; what is raised becomes the reason of the case's row."""
        ...


class LanguageBackend(Protocol):
    """Answers the language tasks about one failure. Deterministic for a fixed case, or seeded by its configuration."""

    name: str

    def audit(self, case: Case) -> Verdict:
        """Decide whether the false positive is wrong (`valid`), right after all, or not decidable."""
        ...

    def instruct(self, case: Case, verdict: Verdict) -> Instruction:
        """State the smallest edit of the candidate that makes it match the query."""
        ...

    def edit_caption(self, case: Case, instruction: Instruction, n: int) -> list[Draft]:
        """Write up to `n` different edited captions, best first (`i2t` only)."""
        ...

    def paraphrase(self, case: Case, n: int) -> list[str]:
        """Write up to `n` captions that say in other words what the query's caption says."""
        ...
