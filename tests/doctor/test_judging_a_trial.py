"""What a trial's tables say: hand-made products, and which of their rows are a fault of the set-up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from repair_ray import tables
from repair_ray.doctor.trial import half_made, judge_products, judge_stop
from repair_ray.run import Recipe, Run
from repair_ray.tables import Table

OK, PROSE, BUSY = ("ok", None), ("error", "no JSON"), ("error", "endpoint: HTTP 503")


def commit(run: Run, name: str, kind: Table, rows: list[tuple[str, str | None]], answers: str | None = None) -> None:
    """A product whose rows have these statuses and reasons; `answers` is what the model said in each."""
    made: list[dict[str, Any]] = []
    for number, (status, reason) in enumerate(rows):
        # Every column that a table must have, with a text of its own for each row.
        row = {field.name: f"{field.name}-{number}" for field in kind.schema if not field.nullable}
        made.append({**row, "answer": answers, "status": status, "reason": reason})
    table: pa.Table = tables.to_table(made, kind.schema)
    recipe = Recipe({})
    run.ready(name, recipe)
    run.commit(name, recipe, kind, table, 2.0)


def judged(run: Run) -> dict[str, tuple[str, str]]:
    return {f.check: (f.state, f.found) for f in judge_products(run)}


def test_rejected_rows_are_no_fault(tmp_path: Path) -> None:
    run = Run(tmp_path)
    commit(run, "round-1/verdicts", tables.VERDICTS, [OK, ("rejected", "benign_match"), ("rejected", "unsure")])
    ((state, found),) = judged(run).values()
    assert state == "ok"
    assert found.startswith("2.0 s; ") and "1 ok" in found and "2 rejected (" in found and "benign_match" in found


@pytest.mark.parametrize(("good", "bad", "state"), [(3, 1, "warning"), (1, 3, "failed"), (0, 2, "failed")])
def test_single_pictures_may_be_bad(tmp_path: Path, good: int, bad: int, state: str) -> None:
    run = Run(tmp_path)
    rows = [OK] * good + [("error", "html")] * bad
    commit(run, "data/images", tables.IMAGES, rows)
    # No such leave for what comes after.
    commit(run, "round-1/embeddings", tables.EMBEDDINGS, [*rows, *[OK] * 9])
    found = judged(run)
    assert found["trial: data/images"][0] == state
    assert found["trial: round-1/embeddings"][0] == "failed"
    assert f"{bad} error (html)" in found["trial: data/images"][1]


@pytest.mark.parametrize(
    ("rows", "answer", "state"),
    [
        ([OK, PROSE], "Sure!", "warning"),
        ([PROSE, PROSE], "Sure!", "failed"),  # a model that never answers as it should
        ([OK, PROSE], None, "failed"),  # it did not answer at all
        ([OK, BUSY], None, "failed"),
    ],
)
def test_single_answers_may_be_unusable(
    tmp_path: Path, rows: list[tuple[str, str | None]], answer: str | None, state: str
) -> None:
    run = Run(tmp_path)
    commit(run, "round-1/verdicts_answers", tables.ANSWERS, rows, answer)
    # The verdict carries the answer's reason.
    commit(run, "round-1/verdicts", tables.VERDICTS, rows)
    assert {found[0] for found in judged(run).values()} == {state}
    # A reason of its own stays a fault.
    commit(run, "round-1/edits", tables.EDITS, [*rows, ("error", "KeyError: 'x'")])
    assert judged(run)["trial: round-1/edits"][0] == "failed"


def test_products_that_were_told_before(tmp_path: Path) -> None:
    run = Run(tmp_path)
    commit(run, "data/images", tables.IMAGES, [OK])
    commit(run, "round-1/embeddings", tables.EMBEDDINGS, [OK])
    found = judge_products(run, without=frozenset({"data/images"}))
    assert [finding.check for finding in found] == ["trial: round-1/embeddings"]


def stopped(run: Run, before: frozenset[str] = frozenset()) -> list[tuple[str, str, str]]:
    return [(f.check, f.state, f.found) for f in judge_stop(run, "the reason", before)]


def test_the_product_that_was_being_made_has_failed(tmp_path: Path) -> None:
    run = Run(tmp_path)
    commit(run, "data/images", tables.IMAGES, [OK])
    run.ready("round-1/embeddings", Recipe({}))
    assert stopped(run) == [("trial: round-1/embeddings", "failed", "the reason")]


def test_a_stage_that_no_row_reached_is_no_fault_of_its_own(tmp_path: Path) -> None:
    run = Run(tmp_path)
    commit(run, "round-1/verdicts", tables.VERDICTS, [BUSY, BUSY])
    run.ready("round-1/edits", Recipe({}))
    assert stopped(run) == [("trial: round-1/edits", "skipped", "the stage before it left no row")]
    # Training, which is tried after that, is told by itself.
    before = frozenset(half_made(run))
    run.ready("round-1/training", Recipe({}))
    assert stopped(run, before) == [("trial: round-1/training", "failed", "the reason")]


def test_tables_that_leave_nothing_to_go_on_with(tmp_path: Path) -> None:
    run = Run(tmp_path)
    commit(run, "round-1/failures", tables.FAILURES, [("no_failure", "no false positive")])
    assert stopped(run) == [("trial: round-1/edits", "skipped", "so few rows show no failure to repair")]
    run = Run(tmp_path / "other")
    commit(run, "round-1/failures", tables.FAILURES, [OK])
    commit(run, "round-1/edits", tables.EDITS, [("rejected", "no instruction")])
    assert stopped(run)[0][:2] == ("trial", "warning")
    # What stops the second attempt is never excused by the tables of the first.
    assert stopped(run, frozenset({"round-1/edits"})) == [("trial", "failed", "the reason")]
