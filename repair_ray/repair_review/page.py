"""Accepted edits as a task of the form page: what was wrong, what was made of it, and the grid that trains on it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jinja2
import pyarrow as pa
import pyarrow.compute as pc
from markupsafe import Markup

from repair_ray.config import CRITERIA, Config, Criterion
from repair_ray.repair_review.edits import accepted_edits, edits_of, judged_of
from repair_ray.repair_review.sample import sample_of
from repair_ray.report.grids import EditGrids, changed_words
from repair_ray.report.pictures import DataRows, Pictures, Row
from repair_ray.report.results import DIRECTIONS
from repair_ray.review.form import Question
from repair_ray.run import Run

# Pixels, of the longest side.
LARGE = 512
_ASKED: dict[Criterion, tuple[str, str]] = {
    "valid": ("Is the false positive really wrong?", "It does not match the query."),
    "matches": ("Does the correction match the query?", "All that it shows or says holds for the query."),
    "scaffold": ("Is the scaffold kept?", "All that was right in the false positive is still there."),
    "minimal": ("Is the edit minimal?", "Nothing has changed but what was wrong."),
    "contrast": ("Do the two make a good contrast?", "They differ in what decides, and one can tell."),
}


class EditReview:
    """The sample of a round's edits, with five questions each.

    The judge's verdict and the editor's instruction are shown with `everything` alone.
    """

    questions = tuple(Question(name, *_ASKED[name]) for name in CRITERIA)

    def __init__(self, run: Run, config: Config, number: int, n: int | None = None, seed: int | None = None) -> None:
        """Raises `RunError` as `sample_of`."""
        edits = edits_of(number)
        self.title = f"Review of {config.name}, round {number}"
        self._sample = {row["item_id"]: row for row in sample_of(run, number, n, seed)}
        self.items = tuple(self._sample)
        accepted = accepted_edits(run, edits)
        self._edits = {item: accepted[item] for item in self.items}
        self._number = number
        self._data, self._pictures = DataRows(run), Pictures(run, config.data)
        self._grids = EditGrids(run, edits, self._data, self._pictures)
        self._verdicts = _verdicts(run, judged_of(run, edits)[1], [row["failure_id"] for row in self._edits.values()])
        self._page = jinja2.Environment(
            loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        ).get_template("edit.html.j2")

    def shown(self, item: str, *, everything: bool) -> Markup:
        """An edit as markup. Every text is escaped: captions and instructions come from outside."""
        edit = self._edits[item]
        case = self._caption_case(edit) if edit["direction"] == "i2t" else self._picture_case(edit)
        values: dict[str, Any] = {
            "direction": DIRECTIONS[edit["direction"]],
            "round": self._number,
            "error_types": self._sample[item]["error_types"],
            "case": case,
            "grid": self._grids.of(edit["failure_id"]),
            "verdict": self._verdicts.get(edit["failure_id"]) if everything else None,
            "instruction": edit["instruction"] if everything else None,
        }
        return Markup(self._page.render(**values))

    def _caption_case(self, edit: Row) -> Row:
        """A picture as the query: its captions, and the wrong caption before and after its edit."""
        query = self._data.images([edit["query_id"]])[edit["query_id"]]
        said = self._data.captions_of([edit["query_id"]])[edit["query_id"]]
        source = self._data.captions([edit["candidate_id"]])[edit["candidate_id"]]["text"]
        first = sorted(said, key=lambda row: row["caption_id"] != edit["ground_truth_id"])
        return {
            "query": self._pictures.of(query, f"query picture, described as: {_first(first)}", LARGE),
            "truth": [row["text"] for row in first],
            "before": changed_words(edit["text"], source),
            "after": changed_words(source, edit["text"]),
        }

    def _picture_case(self, edit: Row) -> Row:
        """A caption as the query: its picture, and the wrong picture before and after its edit."""
        query = self._data.captions([edit["query_id"]])[edit["query_id"]]["text"]
        images = self._data.images([edit["ground_truth_id"], edit["candidate_id"]])
        wrong = self._data.captions_of([edit["candidate_id"]])[edit["candidate_id"]]
        truth, source = images[edit["ground_truth_id"]], images[edit["candidate_id"]]
        return {
            "query": query,
            "truth": self._pictures.of(truth, "ground truth picture", LARGE),
            "before": self._pictures.of(source, f"false positive, described as: {_first(wrong)}", LARGE),
            "after": self._pictures.of(edit, "corrected picture", LARGE),
            "described": [row["text"] for row in wrong],
        }


def _first(captions: list[Row]) -> str:
    return next((row["text"] for row in captions), "no caption")


def _verdicts(run: Run, product: str, failures: list[str]) -> dict[str, Row]:
    if run.manifest(product) is None:
        return {}
    table = run.read(product)
    return {
        row["failure_id"]: row
        for row in table.filter(pc.is_in(table["failure_id"], pa.array(failures, pa.string()))).to_pylist()
    }
