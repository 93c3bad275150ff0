"""The language tasks. A new one is a template, an answer and a class here."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from repair_ray.data.text import text_key
from repair_ray.engines.language import Case, Draft, Instruction, Mismatch, Verdict
from repair_ray.engines.tasks.answers import (
    AnswerError,
    AuditAnswer,
    CaptionEditAnswer,
    ImageInstructionAnswer,
    MatchAnswer,
    ParaphraseAnswer,
    QueryAnswer,
)
from repair_ray.engines.tasks.base import Limits, Prompt, Role, Task, View
from repair_ray.engines.tasks.checks import caption_problem, words

MAX_INSTRUCTION_WORDS = 60


class Audit(Task[Verdict]):
    """Is the ground truth right, and is the false positive really wrong? (methods, section 1, step 2)"""

    name = "audit"
    answer = AuditAnswer

    def result(self, answer: AuditAnswer, case: Case, limits: Limits) -> Verdict:
        judgement = answer.judgement
        mismatches = tuple(Mismatch(m.type, m.query.strip(), m.candidate.strip()) for m in answer.mismatches)
        # A judge that contradicts itself, or is not sure enough, has abstained (ours).
        contradiction = (judgement == "valid" and not mismatches) or (judgement == "benign_match" and mismatches)
        if contradiction or answer.confidence < limits.min_confidence:
            judgement = "unsure"
        return Verdict(judgement, mismatches, answer.confidence, answer.reason)


class AuditSwapped(Audit):
    """The audit's question with both items in the other order: a judge whose answer changes goes by the order."""

    name = "audit_swapped"

    def prompt(self, case: Case, view: View, limits: Limits) -> Prompt:
        """The audit's own instructions, then the case, its candidate first."""
        return replace(super().prompt(case, view, limits), system=TASKS[Audit.name].prompt(case, view, limits).system)

    def images(self, case: Case) -> tuple[Role, ...]:
        return ("candidate", "query")


class CaptionEdit(Task[tuple[Instruction, tuple[Draft, ...]]]):
    """Instruct and edit in one question: captions with the smallest edit that makes them true of the query's image.

    The drafts come with the reason why one cannot be used, so that none is lost. Only for `i2t` cases.
    """

    name = "caption_edit"
    answer = CaptionEditAnswer

    def result(self, answer: CaptionEditAnswer, case: Case, limits: Limits) -> tuple[Instruction, tuple[Draft, ...]]:
        source = case.candidate_text or ""
        if not answer.feasible:
            return Instruction(False, reason=_short(answer.reason)), ()
        if not answer.drafts:
            raise AnswerError("feasible, but without a draft")
        drafts: list[Draft] = []
        seen: set[str] = set()
        for draft in answer.drafts[: limits.drafts]:
            problem = caption_problem(draft, source, case.query_captions, limits.max_changes)
            if text_key(draft.caption) in seen:
                problem = problem or "written twice"
            seen.add(text_key(draft.caption))
            drafts.append(Draft(" ".join(draft.caption.split()), problem))
        first = answer.drafts[0].changes
        steps = "; ".join(
            f"replace '{c.before}' with '{c.after}'" if c.after else f"remove '{c.before}'" for c in first
        )
        return Instruction(True, steps or "no change declared"), tuple(drafts)


class ImageInstruction(Task[Instruction]):
    """One instruction to an image editor that makes the candidate's picture show the query. Only for `t2i` cases."""

    name = "image_instruction"
    answer = ImageInstructionAnswer

    def images(self, case: Case) -> tuple[Role, ...]:
        return ("candidate",)

    def result(self, answer: ImageInstructionAnswer, case: Case, limits: Limits) -> Instruction:
        if not answer.feasible:
            return Instruction(False, reason=_short(answer.reason))
        text = " ".join(answer.instruction.split())
        if not text:
            raise AnswerError("feasible, but without an instruction")
        if len(words(text)) > MAX_INSTRUCTION_WORDS:
            raise AnswerError(f"an instruction of more than {MAX_INSTRUCTION_WORDS} words")
        if text_key(text) == text_key(case.query_text or ""):
            raise AnswerError("the instruction is the query itself")
        return Instruction(True, text)


class Paraphrase(Task[tuple[str, ...]]):
    """Other captions with the same meaning as the query's first: positives for the `paraphrase` strategy."""

    name = "paraphrase"
    answer = ParaphraseAnswer

    def images(self, case: Case) -> tuple[Role, ...]:
        return ("query",)

    def values(self, case: Case, limits: Limits) -> dict[str, Any]:
        return {"source": case.query_text or case.query_captions[0]}

    def result(self, answer: ParaphraseAnswer, case: Case, limits: Limits) -> tuple[str, ...]:
        source = case.query_text or case.query_captions[0]
        found = {text_key(text): " ".join(text.split()) for text in answer.paraphrases if text.strip()}
        found.pop(text_key(source), None)
        if not found:
            raise AnswerError("no paraphrase differs from its source")
        return tuple(found.values())[: limits.drafts]


class VerifyMatch(Task[Verdict]):
    """Does a caption describe an image? In the audit's words: `benign_match` when it does, `valid` when not."""

    name = "verify_match"
    answer = MatchAnswer

    def images(self, case: Case) -> tuple[Role, ...]:
        return ("candidate",) if case.direction == "t2i" else ("query",)

    def result(self, answer: MatchAnswer, case: Case, limits: Limits) -> Verdict:
        sure = answer.confidence >= limits.min_confidence
        judgement = {"yes": "benign_match", "no": "valid"}.get(answer.matches, "unsure") if sure else "unsure"
        return Verdict(judgement, (), answer.confidence, answer.reason)  # type: ignore[arg-type]


class WriteQuery(Task[str]):
    """A query that a person would type to find the image whose captions these are.

    With `query_text`, to find all images that share what it says; `query_captions` are then captions of some of them.
    """

    name = "write_query"
    answer = QueryAnswer

    def images(self, case: Case) -> tuple[Role, ...]:
        return ("query",) if case.query_text is None else ()

    def result(self, answer: QueryAnswer, case: Case, limits: Limits) -> str:
        text = " ".join(answer.query.split())
        if not text:
            raise AnswerError("empty query")
        if case.query_text is None and text_key(text) in {text_key(caption) for caption in case.query_captions}:
            raise AnswerError("the query is a caption of the image")
        return text


def _short(reason: str) -> str:
    return " ".join(reason.split())[:200] or "the model sees no edit"


TASKS: dict[str, Task[Any]] = {
    made.name: made
    for made in (
        Audit(),
        AuditSwapped(),
        CaptionEdit(),
        ImageInstruction(),
        Paraphrase(),
        VerifyMatch(),
        WriteQuery(),
    )
}


def task(name: str) -> Task[Any]:
    """The task of that name; raises KeyError."""
    return TASKS[name]
