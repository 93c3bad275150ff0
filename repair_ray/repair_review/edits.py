"""The edits that people may review, by the round that made them, and the answers that they have given."""

from __future__ import annotations

import re
from typing import Any

import pyarrow.compute as pc

from repair_ray import tables
from repair_ray.config import CRITERIA
from repair_ray.evaluation.votes import LABELS
from repair_ray.review.annotations import read_all
from repair_ray.run import Run, RunError
from repair_ray.stages.products import round_place

Row = dict[str, Any]
REVIEW = "review"
ANSWERS = f"{REVIEW}/answers"
# {annotator: {item: {criterion: answer}}}
Answers = dict[str, dict[str, dict[str, str]]]


def edits_of(number: int) -> str:
    """The product of a round's edits."""
    return f"{round_place(number)}/edits"


def rounds_with_edits(run: Run) -> list[int]:
    """The numbers of the rounds whose edits are made, in order."""
    found = (re.fullmatch(r"round-(\d+)", path.name) for path in run.folder.glob("round-*"))
    numbers = sorted(int(match[1]) for match in found if match)
    return [number for number in numbers if run.manifest(edits_of(number)) is not None]


def accepted_edits(run: Run, edits: str) -> dict[str, Row]:
    """The accepted edits of a product, by the ids of items; paired counterparts are none.

    An id is that of the edit's content and of all that it was made from: an answer about an edit that was made anew,
    with other settings or by another model, says nothing of the new one.
    """
    fingerprint = (run.manifest(edits) or {}).get("fingerprint")
    columns = [name for name in tables.EDITS.schema.names if name != "candidates"]
    accepted = (pc.field("status") == tables.OK) & (pc.field("kind") == tables.EDITED)
    found = {}
    for row in run.read(edits, columns, accepted).sort_by("failure_id").to_pylist():
        content = (row["text"], row["uri"], row["offset"], row["length"])
        found[tables.row_id(fingerprint, row["failure_id"], *content)] = row
    return found


def judged_of(run: Run, edits: str) -> tuple[str, str]:
    """The failures and verdicts that edits were made from."""
    made_from, place = run.made_from(edits), edits.rpartition("/")[0]
    return made_from.get("failures", f"{place}/failures"), made_from.get("verdicts", f"{place}/verdicts")


def error_types_of(run: Run, edits: str) -> dict[str, list[str]]:
    """The types of errors that the judge named for each failure, each once, in its order."""
    _, verdicts = judged_of(run, edits)
    if run.manifest(verdicts) is None:
        return {}
    rows = run.read(verdicts, ["failure_id", "mismatches"]).to_pylist()
    return {row["failure_id"]: list(dict.fromkeys(m["type"] for m in row["mismatches"] or ())) for row in rows}


def read_answers(run: Run) -> Answers:
    """What everybody has answered, as it is on the disk; questions that are asked no more are left out.

    Raises:
        RunError: a file of answers that cannot be read; names the line.
    """
    found: Answers = {}
    for annotator, labels in read_all(run.path(ANSWERS), LABELS).items():
        own: dict[str, dict[str, str]] = {}
        for key, answer in labels.items():
            item, _, criterion = key.rpartition("/")
            if criterion in CRITERIA:
                own.setdefault(item, {})[criterion] = answer
        found[annotator] = own
    return found


def round_of(run: Run, number: int | None) -> int:
    """The round to review: the one asked for, or the last one whose edits are made.

    Raises:
        RunError: there is no run, or that round has no edits.
    """
    made = rounds_with_edits(run)
    if number is None and made:
        return made[-1]
    if number not in made:
        what = f"round {number} of {run.folder}" if number is not None else str(run.folder)
        known = f"; rounds that have: {', '.join(map(str, made))}" if made else ""
        raise RunError(f"{what} has no edits to review yet{known}")
    assert number is not None
    return number
