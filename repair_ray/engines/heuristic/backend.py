"""The heuristic language backend: it aligns captions and uses no model (ours)."""

from __future__ import annotations

from repair_ray.engines.heuristic import audit, edit, instruct
from repair_ray.engines.heuristic.paraphrase import paraphrases
from repair_ray.engines.language import Case, Draft, Instruction, Verdict


class HeuristicLanguage:
    """Answers the language tasks from the words of the captions alone: a `LanguageBackend` without a model.

    It is a heuristic. It knows closed classes of English (colours, sizes, numbers, sides) and a few synonyms, and takes
    what an image's captions do not mention, a noun foremost, as not there. So it is exact where captions are complete
    and plain, and calls many true matches wrong where people name one thing by many words. It never sees a picture.
    `max_changes`: an edit that needs more changes is not feasible.

    Raises ValueError when `max_changes` is below 1, and in each task when the case lacks the text of its direction.
    """

    name = "heuristic"

    def __init__(self, max_changes: int = 4) -> None:
        if max_changes < 1:
            raise ValueError(f"max_changes is {max_changes}; give a number of at least 1")
        self.max_changes = max_changes

    def audit(self, case: Case) -> Verdict:
        """Judge the failure; the mismatches are what the captions of the image deny."""
        return audit.audit(case)

    def instruct(self, case: Case, verdict: Verdict) -> Instruction:
        """State the smallest edit. It is found from the captions anew; of the verdict only the judgement counts."""
        if verdict.judgement != "valid":
            return Instruction(False, reason=f"the failure was judged {verdict.judgement}; only valid ones are edited")
        text, captions = audit.target_of(case)
        state = instruct.caption_instruction if case.direction == "i2t" else instruct.image_instruction
        return state(text, captions, self.max_changes)

    def edit_caption(self, case: Case, instruction: Instruction, n: int) -> list[Draft]:
        """Up to `n` different edited captions, fewest changed words first; none for an instruction not feasible.

        Raises ValueError for a t2i case.
        """
        if case.direction != "i2t":
            raise ValueError("edit_caption is for i2t cases; a t2i case is edited by an image editor")
        if not instruction.feasible:
            return []
        text, captions = audit.target_of(case)
        return [Draft(found.text) for found in edit.caption_edits(text, captions, n)]

    def paraphrase(self, case: Case, n: int) -> list[str]:
        """Up to `n` other ways to say the query's caption, by synonyms."""
        return paraphrases(case.query_text or case.query_captions[0], n)
