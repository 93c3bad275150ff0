"""A language backend that reads what a model has answered."""

from __future__ import annotations

from dataclasses import dataclass

from repair_ray.engines.language import Case, Draft, Instruction, Verdict
from repair_ray.engines.tasks import Limits, task

AUDIT = "audit"
# The same question, with both items in the other order.
AUDIT_SWAPPED = "audit_swapped"
PARAPHRASE = "paraphrase"
EDITS = {"i2t": "caption_edit", "t2i": "image_instruction"}


@dataclass
class RecordedLanguage:
    """A `LanguageBackend` over one recorded answer: that to the audit's question, or to the edit's.

    Each method raises `AnswerError` when the answer cannot be used.
    """

    name: str
    answer: str
    limits: Limits

    def audit(self, case: Case) -> Verdict:
        """The verdict that the answer states."""
        verdict: Verdict = task(AUDIT).read(self.answer, case, self.limits)
        return verdict

    def instruct(self, case: Case, verdict: Verdict) -> Instruction:
        """The instruction that the answer states, or that its first draft amounts to (`i2t`)."""
        found = task(EDITS[case.direction]).read(self.answer, case, self.limits)
        instruction: Instruction = found[0] if case.direction == "i2t" else found
        return instruction

    def edit_caption(self, case: Case, instruction: Instruction, n: int) -> list[Draft]:
        """The drafts of the answer, those that cannot be used with their problem."""
        _, drafts = task(EDITS["i2t"]).read(self.answer, case, self.limits)
        return list(drafts[:n])

    def paraphrase(self, case: Case, n: int) -> list[str]:
        """The paraphrases that the answer states."""
        found: tuple[str, ...] = task(PARAPHRASE).read(self.answer, case, self.limits)
        return list(found[:n])
