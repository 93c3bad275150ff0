"""What models were asked, what editors made, and what the repaired retriever answers otherwise; summed by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from repair_ray import tables
from repair_ray.config import parse_config
from repair_ray.run import Recipe, Run
from repair_ray.summary import language_usage, make_summary


def test_calls_tokens_and_cost(tmp_path: Path) -> None:
    run = Run(tmp_path)

    def commit(product: str, kind: tables.Table, rows: list[dict[str, Any]]) -> None:
        run.ready(product, Recipe({}))
        run.commit(product, Recipe({}), kind, tables.to_table(rows, kind.schema), 0.0)

    def answer(name: str, calls: int, inputs: int, outputs: int) -> dict[str, Any]:
        used = {"calls": calls, "input_tokens": inputs, "output_tokens": outputs, "seconds": 0.5}
        return {"question_id": name, "task": "audit", "status": "ok", **used}

    priced = {"backend": "openai", "model": "m", "price": {"input": 2.0, "output": 10.0}}
    cheap = {"backend": "openai", "model": "n", "price": {"input": 1.0, "output": 0.0}}
    config = parse_config({"data": {"path": "x"}, "language": priced, "audit": {"language": cheap}})
    assert language_usage(run, config, "round-1") == {}
    commit("round-1/verdicts_answers", tables.ANSWERS, [answer("a", 1, 1000, 10), answer("b", 3, 2000, 20)])
    commit("round-1/edits_answers", tables.ANSWERS, [answer("c", 1, 500_000, 100_000)])
    edit = {"direction": "i2t", "query_id": "q", "candidate_id": "c", "ground_truth_id": "g"}
    edits = [{"failure_id": str(n), **edit, "status": status} for n, status in enumerate(("ok", "ok", "rejected"))]
    commit("round-1/edits", tables.EDITS, edits)
    usage = language_usage(run, config, "round-1")
    assert usage["products"]["round-1/verdicts_answers"] == {
        "model": "n",
        "questions": 2,
        "calls": 4,
        "input_tokens": 3000,
        "output_tokens": 30,
        "seconds": 1.0,
        "cost": 0.003,
    }
    assert usage["products"]["round-1/edits_answers"]["cost"] == 2.0
    assert usage["calls_per_pair"] == 2.5


def test_what_changed_and_what_was_made(tmp_path: Path) -> None:
    run = Run(tmp_path)
    config = parse_config({"data": {"path": "x"}, "variants": {"half": {"mining": {"budget": 1}}}})

    def commit(product: str, kind: tables.Table, rows: list[dict[str, Any]]) -> None:
        run.ready(product, Recipe({}))
        run.commit(product, Recipe({}), kind, tables.to_table(rows, kind.schema), 0.0)

    def ranked(product: str, i2t: list[int], t2i: list[int]) -> None:
        both = {"i2t": i2t, "t2i": t2i}
        rows = [
            {"query_id": f"{d}{n}", "direction": d, "rank": rank or None, "status": "ok" if rank else "rejected"}
            for d, ranks in both.items()
            for n, rank in enumerate(ranks)
        ]
        commit(product, tables.RANKS, rows)

    pair = {"query_id": "q", "candidate_id": "c", "ground_truth_id": "g", "kind": "edited"}
    edits = [
        {"failure_id": "f1", "direction": "i2t", **pair, "status": "ok", "candidates": [{"text": "a"}, {"text": "b"}]},
        {"failure_id": "f2", "direction": "t2i", **pair, "status": "rejected", "candidates": [{"uri": "x"}]},
        {"failure_id": "f3", "direction": "t2i", **pair, "status": "ok", "candidates": None},
    ]
    commit("round-1/edits", tables.EDITS, edits)
    ranked("base/metrics", [1, 2, 3, 0], [4, 4])
    ranked("round-1/metrics", [1, 1, 3, 0], [1, 1])
    ranked("controls/half/metrics", [2, 1, 3, 0], [1, 1])
    run.ready("round-1/training", Recipe({}))
    run.finish("round-1/training", Recipe({}), 1.0, training={"items_encoded": 8}, corrected=2)
    found = make_summary(run, config, "round-1")
    (made,) = found["rounds"]
    assert made["edits"]["candidates"] == {"i2t": 2, "t2i": 1}
    assert made["corrected"] == 2
    assert found["controls"]["half"]["corrected"] is None
    assert list(found["changes"]) == ["base", "half"]  # the other control was not evaluated
    assert found["changes"]["base"]["i2t"].items() >= {"fixed": 1, "broken": 0, "right_in_both": 1}.items()
    # Two of two coins on one side: 2 / 4.
    assert found["changes"]["base"]["t2i"].items() >= {"fixed": 2, "broken": 0, "p": 0.5}.items()
    assert found["changes"]["half"]["i2t"].items() >= {"fixed": 1, "broken": 0}.items()
    (training,) = [stage for stage in found["stages"] if stage["name"] == "round-1/training"]
    assert training["seconds"] == 1.0 and 0 <= training["finished"] - training["started"] < 60


def test_metrics_that_kept_no_ranks_tell_no_changes(tmp_path: Path) -> None:
    run = Run(tmp_path)
    for product in ("base/metrics", "round-1/metrics"):
        run.ready(product, Recipe({}))
        run.finish(product, Recipe({}), 1.0, metrics={})
    assert make_summary(run, parse_config({"data": {"path": "x"}}), "round-1")["changes"] == {}
