"""Edits that people have refused: training leaves them out."""

from __future__ import annotations

import time
from collections import Counter

from repair_ray import tables
from repair_ray.config import Criterion, ReviewConfig
from repair_ray.evaluation.votes import NO, decide
from repair_ray.repair_review.edits import Answers, Row, accepted_edits, read_answers
from repair_ray.run import Recipe, Run
from repair_ray.stages.products import reviewed_product


class Refusals:
    """What people had said when a run (or what has gone on with it) began: it holds to the end of that process.

    Who answers meanwhile is heard when the run goes on the next time.
    """

    def __init__(self, review: ReviewConfig, answers: Answers) -> None:
        self._review = review
        self._answers = answers

    @classmethod
    def read(cls, run: Run, review: ReviewConfig) -> Refusals:
        """Raises `RunError` for answers that cannot be read."""
        return cls(review, read_answers(run) if review.exclude != "no" else {})

    def settle(self, run: Run, edits: str, training: str | None = None) -> str:
        """The product to train with: `edits`, or, where people refused some, `<edits>_reviewed`.

        Its rows are those of `edits`, refused ones with the status `refused` and the criterion as reason. One that was
        made from other refusals is made anew, and all that was made from it is taken away: `training` too, where it
        was made from the other of the two products.
        """
        product = reviewed_product(edits)
        refused = self._refused(run, edits)
        settings = {"refused": tables.row_id(*sorted(f"{failure} {why}" for failure, why in refused.items()))}
        # A half-made product counts too, and one whose refusals were all taken back.
        made = run.parents(product) is not None
        if made and (not refused or (run.manifest(product) or {}).get("recipe", {}).get("settings") != settings):
            run.redo(product)
        if training is not None and (run.parents(training) or set()) & {edits if refused else product}:
            run.redo(training)
        if not refused:
            return edits
        recipe = Recipe(settings, (edits,))
        if not run.ready(product, recipe):
            start = time.monotonic()
            rows: list[Row] = [
                {**row, "status": tables.REFUSED, "reason": f"refused in review: {refused[row['failure_id']]}"}
                if row["failure_id"] in refused
                else row
                for row in run.read(edits).to_pylist()
            ]
            table = tables.to_table(rows, tables.REVIEWED.schema)
            counts = dict(Counter(refused.values()))
            run.commit(product, recipe, tables.REVIEWED, table, time.monotonic() - start, refused=counts)
        return product

    def _refused(self, run: Run, edits: str) -> dict[str, Criterion]:
        """The failures whose edit is refused, each with the first criterion that it fails."""
        if not self._answers:
            return {}
        found: dict[str, Criterion] = {}
        for item, row in accepted_edits(run, edits).items():
            for criterion in self._review.criteria:
                votes = [own[item][criterion] for own in self._answers.values() if criterion in own.get(item, {})]
                if NO in votes and (self._review.exclude == "any" or decide(votes) == NO):
                    found.setdefault(row["failure_id"], criterion)
        return found
