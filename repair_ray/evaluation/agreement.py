"""How far two judgements of the same failures agree: confusion, shares with Wilson intervals, Cohen's kappa.

Nothing here is NaN: what is not defined (a share of nothing, the kappa of a single class) is None.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, get_args

from repair_ray.engines.language import Judgement
from repair_ray.evaluation.statistics import wilson_interval

JUDGEMENTS: tuple[str, ...] = get_args(Judgement)
DIRECTIONS = ("i2t", "t2i")
VALID = "valid"
ABSTAINED = "unsure"
# A failure that the judge could not be asked about, or whose answer could not be read.
NO_VERDICT = "error"
# Both bounds belong to a bin only at 1: the last bin holds full confidence.
BINS = ((0.0, 0.5), (0.5, 0.7), (0.7, 0.8), (0.8, 0.9), (0.9, 1.0))


@dataclass(frozen=True)
class Judged:
    """One failure: the judge's word (`NO_VERDICT` where there is none) with its confidence, and the people's."""

    direction: str
    judgement: str
    confidence: float | None
    label: str


def share(hits: int, of: int) -> dict[str, Any]:
    """`hits` of `of` in percent, with its 95 % Wilson interval; both None where `of` is 0."""
    if not of:
        return {"hits": hits, "of": of, "percent": None, "interval": None}
    low, high = wilson_interval(hits, of)
    return {
        "hits": hits,
        "of": of,
        "percent": round(100 * hits / of, 3),
        "interval": [round(100 * low, 3), round(100 * high, 3)],
    }


def kappa(first: Sequence[object], second: Sequence[object]) -> float | None:
    """Cohen's kappa (1960) of two raters over the same items, in whole numbers until the last division.

    None where it is not defined: no item, or both raters put every item into one class, so that chance agrees always.

    Raises:
        ValueError: of different lengths.
    """
    n = len(first)
    agreed = sum(a == b for a, b in zip(first, second, strict=True))
    ours, theirs = Counter(first), Counter(second)
    by_chance = sum(ours[name] * theirs[name] for name in ours)
    return None if n * n == by_chance else (n * agreed - by_chance) / (n * n - by_chance)


def agreement(first: Sequence[str], second: Sequence[str]) -> dict[str, Any]:
    """`n`, the share of equal judgements, Cohen's kappa over all classes, and over valid against the rest."""
    valid = ([name == VALID for name in one] for one in (first, second))
    return {
        "n": len(first),
        "equal": share(sum(a == b for a, b in zip(first, second, strict=True)), len(first)),
        "kappa": _rounded(kappa(first, second)),
        "kappa_valid": _rounded(kappa(*valid)),
    }


def against_labels(rows: Sequence[Judged]) -> dict[str, Any]:
    """The judge against people: in `total`, by direction, and by the judge's confidence.

    Precision: of the failures judged valid, how many are valid to people. Recall: of those valid to people, how many
    were judged valid. What the judge left open (`abstained`, `no_verdict`) is not valid in both, and counted. The
    kappas and `equal` are over the failures that have a verdict.
    """
    found = {"total": _against(rows)}
    found |= {d: _against([row for row in rows if row.direction == d]) for d in DIRECTIONS}
    return {**found, "confidence": _by_confidence(rows)}


def _against(rows: Sequence[Judged]) -> dict[str, Any]:
    judged = [row for row in rows if row.judgement == VALID]
    labelled = [row for row in rows if row.label == VALID]
    right = sum(row.label == VALID for row in judged)
    with_verdict = [row for row in rows if row.judgement != NO_VERDICT]
    return {
        "n": len(rows),
        "abstained": sum(row.judgement == ABSTAINED for row in rows),
        "no_verdict": len(rows) - len(with_verdict),
        "people_unsure": sum(row.label == ABSTAINED for row in rows),
        "precision": share(right, len(judged)),
        "recall": share(right, len(labelled)),
        "agreement": agreement([row.judgement for row in with_verdict], [row.label for row in with_verdict]),
        "confusion": confusion((row.judgement, row.label) for row in rows),
    }


def confusion(pairs: Iterable[tuple[str, str]]) -> dict[str, dict[str, int]]:
    """How often each pair of judgements came: `{first: {second: count}}`, all judgements, and others that came."""
    counts = Counter(pairs)
    others = sorted({name for pair in counts for name in pair} - set(JUDGEMENTS))
    firsts = [*JUDGEMENTS, *(name for name in others if any(first == name for first, _ in counts))]
    seconds = [*JUDGEMENTS, *(name for name in others if any(second == name for _, second in counts))]
    return {first: {second: counts[first, second] for second in seconds} for first in firsts}


def _by_confidence(rows: Sequence[Judged]) -> list[dict[str, Any]]:
    """Bins without a failure are left out; so is a failure without a confidence."""
    found = []
    for low, high in BINS:
        # Confidences are kept in 32 bits, where 0.9 is a little less than 0.9.
        sure = [(row, round(row.confidence, 6)) for row in rows if row.confidence is not None]
        inside = [row for row, c in sure if low <= c < high or c == high == BINS[-1][1]]
        if inside:
            judged = [row for row in inside if row.judgement == VALID]
            found.append(
                {
                    "low": low,
                    "high": high,
                    "n": len(inside),
                    "equal": share(sum(row.judgement == row.label for row in inside), len(inside)),
                    "precision": share(sum(row.label == VALID for row in judged), len(judged)),
                }
            )
    return found


def between_annotators(labels: dict[str, dict[str, str]]) -> list[dict[str, Any]]:
    """The agreement of each two annotators over the failures that both labelled.

    Args:
        labels: `{annotator: {failure_id: label}}`. Pairs of annotators without a failure in common are left out.
    """
    found = []
    for first, second in combinations(sorted(labels), 2):
        common = sorted(labels[first].keys() & labels[second].keys())
        if common:
            both = ([labels[name][failure] for failure in common] for name in (first, second))
            found.append({"first": first, "second": second, **agreement(*both)})
    return found


def consensus(labels: dict[str, dict[str, str]]) -> tuple[dict[str, str], list[str]]:
    """The label of each failure on which all its annotators agree, and the failures on which they do not."""
    said: dict[str, set[str]] = {}
    for own in labels.values():
        for failure, label in own.items():
            said.setdefault(failure, set()).add(label)
    agreed = {failure: next(iter(names)) for failure, names in said.items() if len(names) == 1}
    return agreed, sorted(said.keys() - agreed.keys())


def flips(first: Sequence[str], second: Sequence[str]) -> dict[str, Any]:
    """How judgements change from one asking to the next: the shares that leave `valid`, and that come to it."""
    pairs = list(zip(first, second, strict=True))
    was_valid = [after for before, after in pairs if before == VALID]
    was_not = [after for before, after in pairs if before != VALID]
    return {
        "from_valid": share(sum(after != VALID for after in was_valid), len(was_valid)),
        "to_valid": share(sum(after == VALID for after in was_not), len(was_not)),
        "confusion": confusion(pairs),
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
