"""What several verifiers say of the same pairs: agreement, the decision, and label sheets that are one and the same.

A verifier says of a pair `yes` (the picture matches the query), `no` or `unsure`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any, Literal, get_args

from repair_ray.data.records import DataError
from repair_ray.evaluation.agreement import kappa, share

Label = Literal["yes", "no", "unsure"]
Rule = Literal["majority", "unanimous"]
LABELS: tuple[str, ...] = get_args(Label)
YES, NO, UNSURE = LABELS
SHOWN = 3


def decide(votes: Sequence[str], rule: Rule = "majority") -> str:
    """One label of a pair: what more than half of the votes say, or, `unanimous`, all of them; else unsure."""
    for label in (YES, NO):
        said = votes.count(label)
        if 2 * said > len(votes) and (rule == "majority" or said == len(votes)):
            return label
    return UNSURE


def decide_all(
    people: Mapping[str, Mapping[str, str]], machines: Mapping[str, Mapping[str, str]], rule: Rule = "majority"
) -> dict[str, tuple[str, list[str]]]:
    """The label of each pair, and its votes as `verifier: label`. Where people labelled a pair, machines have no vote.

    Args:
        people, machines: `{verifier: {pair: label}}`.
    """
    found: dict[str, list[tuple[str, str]]] = {}
    for pair in {pair for own in people.values() for pair in own}:
        found[pair] = [(name, own[pair]) for name, own in sorted(people.items()) if pair in own]
    for pair in {pair for own in machines.values() for pair in own} - found.keys():
        found[pair] = [(name, own[pair]) for name, own in sorted(machines.items()) if pair in own]
    return {
        pair: (decide([label for _, label in votes], rule), [f"{name}: {label}" for name, label in votes])
        for pair, votes in found.items()
    }


def between_verifiers(labels: Mapping[str, Mapping[str, str]]) -> list[dict[str, Any]]:
    """Of each two verifiers, over the pairs that both labelled: `n`, `equal`, Cohen's `kappa`, and who said what.

    `kappa_decided`: the kappa over the pairs of which neither is unsure. Kappas are None where not defined.
    """
    found = []
    for first, second in combinations(sorted(labels), 2):
        common = sorted(labels[first].keys() & labels[second].keys())
        if not common:
            continue
        both = [(labels[first][pair], labels[second][pair]) for pair in common]
        decided = [words for words in both if UNSURE not in words]
        counts = Counter(both)
        found.append(
            {
                "first": first,
                "second": second,
                "n": len(both),
                "equal": share(sum(a == b for a, b in both), len(both)),
                "kappa": _kappa(both),
                "kappa_decided": _kappa(decided),
                "confusion": {a: {b: counts[a, b] for b in LABELS} for a in LABELS},
            }
        )
    return found


def _kappa(both: Sequence[tuple[str, str]]) -> float | None:
    value = kappa([a for a, _ in both], [b for _, b in both])
    return None if value is None else round(value, 4)


def check_same_sheet(rows: Mapping[str, set[str]], sheet: set[str]) -> None:
    """Raises `DataError` unless everybody's rows are those of the sheet.

    Args:
        rows: of each file the pairs that it lists, labelled or not.
        sheet: the pairs of the run's sheet.
    """
    for name, own in rows.items():
        foreign, lacking = sorted(own - sheet), sorted(sheet - own)
        if foreign or lacking:
            such = ", ".join((foreign or lacking)[:SHOWN])
            raise DataError(
                f"{name} is of another sheet than this run's: {len(foreign)} of its {len(own)} pairs are not in it, "
                f"and {len(lacking)} of the sheet's {len(sheet)} are lacking, such as {such}. Annotators must label "
                "the same sheet; ids must be as they were written"
            )
