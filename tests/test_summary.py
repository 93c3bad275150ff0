"""What models were asked, summed by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from repair_ray import tables
from repair_ray.config import parse_config
from repair_ray.run import Recipe, Run
from repair_ray.summary import language_usage


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
