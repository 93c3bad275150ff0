"""Failures that people have judged, put before a question to the judge (ours)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from repair_ray.engines.language import Case, Judgement, Mismatch
from repair_ray.engines.tasks.base import Prompt, render


@dataclass(frozen=True)
class Example:
    """A failure with the judgement that people came to, and what is wrong in it."""

    case: Case
    judgement: Judgement
    mismatches: tuple[Mismatch, ...] = ()


def with_examples(prompt: Prompt, examples: Sequence[Example]) -> Prompt:
    """The prompt with examples at the beginning of the user's message; the same one where there are none.

    Their texts stand where those of the question do, each as a JSON string, and never among the instructions.
    """
    if not examples:
        return prompt
    shown: list[dict[str, Any]] = [
        {
            "case": example.case,
            "judgement": example.judgement,
            "mismatches": [asdict(mismatch) for mismatch in example.mismatches],
        }
        for example in examples
    ]
    return replace(prompt, user=f"{render('examples', 'shown', {'examples': shown})}\n{prompt.user}")
