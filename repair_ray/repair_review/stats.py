"""What the answers about a run's edits come to: precision of each criterion, agreement, disagreements."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any

from repair_ray.config import CRITERIA
from repair_ray.evaluation.agreement import DIRECTIONS, share
from repair_ray.evaluation.votes import NO, UNSURE, YES, between_verifiers, decide
from repair_ray.repair_review.edits import Answers, Row, read_answers, round_of, rounds_with_edits
from repair_ray.repair_review.sample import UNTYPED, sample_of, sample_product
from repair_ray.run import Run, RunError


def stats_of(run: Run, number: int | None = None) -> dict[str, Any]:
    """The figures of one round's review, or of all that have one, as plain values.

    An item counts once, with what more than half of those who answered say (`decide`). `precision`: of the items that
    are decided, the share of yes, with its 95 % Wilson interval; what is `unsure`, or said by no more than half, is
    counted beside it. An item of several error types counts under each.

    Raises:
        RunError: nobody has answered yet, or as `sample_of`.
    """
    numbers = rounds_with_edits(run) if number is None else [round_of(run, number)]
    reviewed = [made for made in numbers if run.manifest(sample_product(made)) is not None]
    items = {row["item_id"]: {**row, "round": made} for made in reviewed for row in sample_of(run, made)}
    said = read_answers(run)
    given: Answers = {name: {item: own[item] for item in own if item in items} for name, own in said.items()}
    given = {name: own for name, own in given.items() if own}
    if not given:
        what = f"{run.folder}, round {number}" if number is not None else str(run.folder)
        raise RunError(f"nobody has reviewed an edit of {what} yet: repair-ray review {run.folder} --annotator NAME")
    types = sorted({kind for row in items.values() for kind in row["error_types"] or [UNTYPED]})
    return {
        "rounds": reviewed,
        "items": len(items),
        "reviewed": len({item for own in given.values() for item in own}),
        "of_other_edits": sum(len(own) for own in said.values()) - sum(len(own) for own in given.values()),
        "annotators": {
            name: {
                "reviewed": len(own),
                "in_full": sum(len(answers) == len(CRITERIA) for answers in own.values()),
                "answers": sum(len(answers) for answers in own.values()),
            }
            for name, own in sorted(given.items())
        },
        "total": _criteria(items.values(), given),
        "direction": {d: _criteria([r for r in items.values() if r["direction"] == d], given) for d in DIRECTIONS},
        "error_type": {
            kind: _criteria([r for r in items.values() if kind in (r["error_types"] or [UNTYPED])], given)
            for kind in types
        },
        "agreement": _agreement(given),
        "disagreements": _disagreements(items, given),
    }


def _criteria(items: Iterable[Row], given: Answers) -> dict[str, Any]:
    wanted = [row["item_id"] for row in items]
    found: dict[str, Any] = {}
    for criterion in CRITERIA:
        votes = [_votes(given, item, criterion) for item in wanted]
        counts = Counter(decide(list(own.values())) for own in votes if own)
        decided = counts[YES] + counts[NO]
        found[criterion] = {
            "n": counts.total(),
            **{name: counts[name] for name in (YES, NO, UNSURE)},
            "precision": share(counts[YES], decided),
        }
    return found


def _votes(given: Answers, item: str, criterion: str) -> dict[str, str]:
    return {name: own[item][criterion] for name, own in sorted(given.items()) if criterion in own.get(item, {})}


def _agreement(given: Answers) -> dict[str, list[dict[str, Any]]]:
    """Of each two annotators, by criterion, over the items that both answered; see `between_verifiers`."""
    found: dict[str, list[dict[str, Any]]] = {}
    for criterion in CRITERIA:
        labels: dict[str, dict[str, str]] = defaultdict(dict)
        for name, own in given.items():
            for item, answers in own.items():
                if criterion in answers:
                    labels[name][item] = answers[criterion]
        found[criterion] = between_verifiers(labels)
    return found


def _disagreements(items: dict[str, Row], given: Answers) -> list[dict[str, Any]]:
    """The answers that are not all the same, in the order of the sample."""
    found = []
    for item, row in items.items():
        for criterion in CRITERIA:
            votes = _votes(given, item, criterion)
            if len(set(votes.values())) > 1:
                about = {name: row[name] for name in ("failure_id", "round", "direction", "error_types")}
                found.append({"item": item, "number": row["place"] + 1, **about, "criterion": criterion, "said": votes})
    return found
