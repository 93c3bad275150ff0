"""Which candidate wins: of those that moved towards the query, the least disruptive (methods, section 1, step 4)."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Admission:
    """Cosines of one candidate with the query (`align`) and with the false positive it was edited from (`scaffold`)."""

    align: float
    scaffold: float


def select(
    candidates: list[Admission | None],
    align_before: float,
    *,
    min_gain: float,
    min_scaffold: float,
    alpha: float,
    pick: Literal["minimal", "first", "random"] = "minimal",
    seed: int = 0,
) -> tuple[int | None, list[str | None]]:
    """Choose a candidate.

    Admissible iff `align - align_before >= min_gain` and `scaffold >= min_scaffold`; of those the largest
    `alpha * align + (1 - alpha) * scaffold` wins, the earlier one on a tie. `first` and `random` (by `seed`) take the
    first, or any, admissible one (ablations). None entries are candidates that failed before they could be scored.

    Returns:
        The index of the winner, or None; and for each candidate why it was not chosen (None for the winner and for
        None entries).
    """
    reasons: list[str | None] = [_fault(c, align_before, min_gain, min_scaffold) if c else None for c in candidates]
    admissible = [i for i, c in enumerate(candidates) if c is not None and reasons[i] is None]
    if not admissible:
        return None, reasons
    if pick == "minimal":
        chosen = max(admissible, key=lambda i: (_merit(candidates[i], alpha), -i))
    else:
        chosen = admissible[0] if pick == "first" else random.Random(seed).choice(admissible)
    for i in admissible:
        if i != chosen:
            reasons[i] = "another candidate was preferred"
    return chosen, reasons


def _merit(candidate: Admission | None, alpha: float) -> float:
    assert candidate is not None
    return alpha * candidate.align + (1 - alpha) * candidate.scaffold


def _fault(candidate: Admission, align_before: float, min_gain: float, min_scaffold: float) -> str | None:
    if candidate.align - align_before < min_gain:
        return "did not move towards the query"
    return "moved too far from its source" if candidate.scaffold < min_scaffold else None
