"""Repairs of earlier rounds, looked at again; and what is left of a round that was rolled back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from repair_ray import tables
from repair_ray.config import MiningConfig
from repair_ray.rounds.rollback import roll_back
from repair_ray.run import Recipe, Run, RunError, write_json
from repair_ray.stages.mine import BEYOND, BEYOND_QUERY, KNOWN, Worked, _settled, worked_on
from repair_ray.stages.products import result_place, result_round, rounds_made
from repair_ray.synthesis.repairs import recheck


def commit(run: Run, product: str, kind: tables.Table, rows: list[dict[str, Any]], *parents: str) -> None:
    run.ready(product, Recipe({}, parents))
    run.commit(product, Recipe({}, parents), kind, tables.to_table(rows, kind.schema), 0.0)


def edit(name: str, status: str = "ok", direction: str = "i2t", query: str = "q") -> dict[str, Any]:
    ids = {"failure_id": name, "query_id": query, "candidate_id": f"c-{name}", "ground_truth_id": "g"}
    return {**ids, "direction": direction, "kind": "edited", "status": status}


def failure(name: str, score: float, truth: float, query: str = "q", **more: Any) -> dict[str, Any]:
    ids = {"failure_id": name, "query_id": query, "candidate_id": f"c-{name}", "direction": "i2t"}
    return {**ids, "rank": 1, "score": score, "ground_truth_score": truth, "status": "ok", **more}


def test_which_repairs_still_fail(tmp_path: Path) -> None:
    run = Run(tmp_path)
    commit(
        run, "round-1/edits", tables.EDITS, [edit("a"), edit("b"), edit("tie"), edit("gone"), edit("no", "rejected")]
    )
    commit(run, "round-2/edits", tables.EDITS, [edit("late", query="r"), edit("t", direction="t2i")])
    mined = [
        failure("a", 0.5, 0.4, status="rejected", reason=KNOWN),
        failure("b", 0.3, 0.4, status="rejected", reason=KNOWN),
        failure("tie", 0.4, 0.4, status="rejected", reason=KNOWN),
        # Two of r's false positives score above its ground truth, which is as deep as was mined: `late` may be below.
        failure("x", 0.9, 0.4, "r"),
        failure("y", 0.8, 0.4, "r"),
        {"failure_id": "none", "direction": "t2i", "query_id": "q", "status": "no_failure"},
    ]
    commit(run, "round-3/failures", tables.FAILURES, mined)
    earlier = {1: "round-1/edits", 2: "round-2/edits"}
    recheck(run, "round-3/repairs", earlier, "round-3/failures", fixed_weight=0.25, depth=2)
    found = {
        row["failure_id"]: (row["round"], row["still_fails"], row["weight"])
        for row in run.read("round-3/repairs").to_pylist()
    }
    # Of q, `a` and `tie` fail, which makes two: b and gone cannot be told from failing either.
    assert found["late"] == (2, True, 1.0)
    assert found["a"] == (1, True, 1.0) and found["tie"] == (1, True, 1.0)
    assert found["t"] == (2, False, 0.25)
    assert "no" not in found
    recheck(run, "deeper", earlier, "round-3/failures", fixed_weight=0.0, depth=3)
    weights = {row["failure_id"]: row["weight"] for row in run.read("deeper").to_pylist()}
    assert weights == {"a": 1.0, "tie": 1.0, "b": 0.0, "gone": 0.0, "late": 0.0, "t": 0.0}
    assert (run.manifest("deeper") or {})["rechecked"] == {
        "round-1": {"i2t": {"repairs": 4, "still_failing": 2}, "t2i": {"repairs": 0, "still_failing": 0}},
        "round-2": {"i2t": {"repairs": 1, "still_failing": 0}, "t2i": {"repairs": 1, "still_failing": 0}},
    }


def test_what_a_round_has_worked_on(tmp_path: Path) -> None:
    run = Run(tmp_path)
    verdicts = [
        {"failure_id": name, "direction": "i2t", "status": status}
        for name, status in (("fine", "ok"), ("benign", "rejected"), ("lost", "error"), ("broken", "ok"))
    ]
    commit(run, "round-1/verdicts", tables.VERDICTS, verdicts)
    commit(run, "round-1/edits", tables.EDITS, [edit("fine"), edit("broken", "error"), edit("refused", "rejected")])
    worked = [Worked("round-1/verdicts", "round-1/edits")]
    assert sorted(worked_on(run, worked).to_pylist()) == ["benign", "fine", "refused"]
    assert worked_on(run, []).to_pylist() == []


def test_known_failures_leave_their_room_to_new_ones() -> None:
    rows = [failure(f"f{n}", 0.5, 0.1, "q" if n < 4 else "r", rank=n) for n in range(1, 7)]
    table = tables.to_table(rows, tables.FAILURES.schema)
    mining = MiningConfig(max_per_query=2, budget=3)
    made = _settled(table, mining, pa.array(["f1", "f4"]))(table)
    reasons = {row["failure_id"]: (row["status"], row["reason"]) for row in made.to_pylist()}
    # Of q, f1 is known: f2 and f3 are its two. Of r, f4 is known, f5 and f6 its two; f6 is the fourth, one too many.
    ok = (tables.OK, None)
    assert reasons == {
        "f1": (tables.REJECTED, KNOWN),
        "f2": ok,
        "f3": ok,
        "f4": (tables.REJECTED, KNOWN),
        "f5": ok,
        "f6": (tables.REJECTED, BEYOND),
    }
    one = _settled(table, MiningConfig(max_per_query=1), pa.array(["f1"]))(table)
    kept = {row["failure_id"]: row["reason"] for row in one.to_pylist()}
    assert kept == {"f1": KNOWN, "f2": None, "f3": BEYOND_QUERY, "f4": None, "f5": BEYOND_QUERY, "f6": BEYOND_QUERY}


def made_rounds(folder: Path, number: int) -> Run:
    """A run of so many rounds: each made from the one before, a control from the last."""
    run = Run(folder / "run")
    products = [("base/training", ()), ("round-1/embeddings", ("base/training",))]
    for n in range(1, number + 1):
        if n > 1:
            products.append((f"round-{n}/embeddings", (f"round-{n - 1}/training",)))
        products += [
            (f"round-{n}/training", (f"round-{n}/embeddings",)),
            (f"round-{n}/metrics", (f"round-{n}/training",)),
        ]
    products += [
        ("controls/vanilla/training", (f"round-{number}/training",)),
        ("base/metrics", ("round-1/embeddings",)),
    ]
    for product, parents in products:
        assert not run.ready(product, Recipe({}, parents))
        run.finish(product, Recipe({}, parents), 0.0)
    return run


def test_a_roll_back_keeps_what_came_before_and_moves_the_rest(tmp_path: Path) -> None:
    run = made_rounds(tmp_path, 11)
    assert rounds_made(run) == list(range(1, 12)) and result_place(run) == "round-11"
    moved, place = roll_back(run, 2)
    assert [name for name, _ in run.products() if name.startswith("round")] == [
        f"round-{n}/{part}" for n in (1, 2) for part in ("embeddings", "training", "metrics")
    ]
    assert "controls/vanilla/training" in moved and "base/metrics" not in moved and len(moved) == 9 * 3 + 1
    assert (place / "round-11/training/manifest.json").is_file()
    # What was made before is found ready, and what comes after is made anew.
    assert run.ready("round-2/training", Recipe({}, ("round-2/embeddings",)))
    assert not run.ready("round-3/embeddings", Recipe({}, ("round-2/training",)))


def test_a_roll_back_to_the_base(tmp_path: Path) -> None:
    run = made_rounds(tmp_path, 1)
    moved, _ = roll_back(run, 0)
    assert moved == ["controls/vanilla/training", "round-1/metrics", "round-1/training"]


@pytest.mark.parametrize(("number", "says"), [(3, "no finished round 3"), (2, "nothing that comes after round-2")])
def test_a_roll_back_to_nowhere_says_so(tmp_path: Path, number: int, says: str) -> None:
    run = made_rounds(tmp_path, 2)
    run.redo("controls/vanilla/training")
    with pytest.raises(RunError, match=says):
        roll_back(run, number)


def test_the_result_is_the_round_that_the_run_has_ended_with(tmp_path: Path) -> None:
    run = made_rounds(tmp_path, 3)
    write_json(run.folder / "summary.json", {"result": {"round": 2}})
    assert (result_round(run), result_place(run), result_place(run, 3)) == (2, "round-2", "round-3")
    with pytest.raises(RunError, match=r"no finished round 4 .* finished: 1, 2, 3"):
        result_place(run, 4)
    write_json(run.folder / "summary.json", {"result": {"round": 0}})
    with pytest.raises(RunError, match="rolled back to its base"):
        result_place(run)
