"""A judge of another package as a language backend: what it answers is checked before a stage takes it."""

from __future__ import annotations

from typing import Any, get_args

from repair_ray.engines.language import Case, Draft, Instruction, Judgement, Verdict

JUDGEMENTS = get_args(Judgement)


class PluggedJudge:
    """A `LanguageBackend` over a `Judge`; raises TypeError and ValueError for answers that are none."""

    def __init__(self, name: str, judge: Any) -> None:
        self.name = name
        self._judge = judge

    def audit(self, case: Case) -> Verdict:
        """The judge's verdict."""
        verdict = self._of(Verdict, self._judge.audit(case))
        if verdict.judgement not in JUDGEMENTS:
            raise ValueError(
                f"the judge {self.name!r} says {verdict.judgement!r}; a judgement is one of {', '.join(JUDGEMENTS)}"
            )
        return verdict

    def instruct(self, case: Case, verdict: Verdict) -> Instruction:
        """The judge's instruction."""
        return self._of(Instruction, self._judge.instruct(case, verdict))

    def edit_caption(self, case: Case, instruction: Instruction, n: int) -> list[Draft]:
        """The judge's drafts, `n` at most."""
        return [self._of(Draft, draft) for draft in self._judge.edit_caption(case, instruction, n)][:n]

    def paraphrase(self, case: Case, n: int) -> list[str]:
        """The judge's paraphrases, `n` at most."""
        return [self._of(str, text) for text in self._judge.paraphrase(case, n)][:n]

    def _of(self, kind: type[Any], answer: Any) -> Any:
        if not isinstance(answer, kind):
            raise TypeError(f"the judge {self.name!r} answers with {type(answer).__name__}, not {kind.__name__}")
        return answer
