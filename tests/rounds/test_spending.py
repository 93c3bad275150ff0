"""What a run has spent, summed by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from repair_ray import tables
from repair_ray.config import BudgetConfig, parse_config
from repair_ray.rounds.spending import Spent, language_usage, spent
from repair_ray.run import Recipe, Run


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
    assert language_usage(run, config, [1]) == {}
    commit("round-1/verdicts_answers", tables.ANSWERS, [answer("a", 1, 1000, 10), answer("b", 3, 2000, 20)])
    commit("round-1/edits_answers", tables.ANSWERS, [answer("c", 1, 500_000, 100_000)])
    edit = {"direction": "i2t", "query_id": "q", "candidate_id": "c", "ground_truth_id": "g"}
    edits = [{"failure_id": str(n), **edit, "status": status} for n, status in enumerate(("ok", "ok", "rejected"))]
    commit("round-1/edits", tables.EDITS, edits)
    usage = language_usage(run, config, [1])
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
    # 3000 + 30 of the audit, 600,000 of the edits; what came after round 0 is not counted for it.
    assert spent(run, config) == Spent(tokens=603_030, image_edits=0, gpu_hours=0.0, cost=2.003)
    assert spent(run, config, 0) == Spent(0, 0, 0.0, 0.0)


def test_pictures_and_gpu_hours_to_the_end_of_a_round(tmp_path: Path) -> None:
    run = Run(tmp_path)
    config = parse_config({"data": {"path": "x"}})
    common = {"direction": "t2i", "query_id": "q", "candidate_id": "c", "ground_truth_id": "g", "status": "ok"}
    made = [{"uri": "a.tar", "status": "ok"}, {"uri": "a.tar", "status": "rejected"}, {"text": "t", "status": "ok"}]
    for number in (1, 2, 11):
        product, rows = (
            f"round-{number}/edits",
            [{"failure_id": str(n), **common, "candidates": made} for n in range(2)],
        )
        run.ready(product, Recipe({}))
        table = tables.to_table(rows, tables.EDITS.schema)
        run.commit(product, Recipe({}), tables.EDITS, table, 1800.0, gpus=number)
    for product, gpus in (("base/training", 4), ("controls/mined/training", 100)):
        run.ready(product, Recipe({}))
        run.finish(product, Recipe({}), 900.0, gpus=gpus)
    # Half an hour of 1, 2 and 11 GPUs, a quarter of 4; two pictures of each of two rows.
    assert spent(run, config, 1) == Spent(0, 4, 0.5 + 1.0, 0.0)
    assert spent(run, config, 2) == Spent(0, 8, 0.5 + 1.0 + 1.0, 0.0)
    assert spent(run, config) == Spent(0, 12, 0.5 + 1.0 + 1.0 + 5.5 + 25.0, 0.0)


def test_a_budget_is_spent_once_it_is_reached() -> None:
    used = Spent(tokens=100, image_edits=3, gpu_hours=0.5, cost=2.0)
    assert used.beyond(BudgetConfig()) is None
    assert used.beyond(BudgetConfig(tokens=101, image_edits=4, gpu_hours=0.51, cost=2.1)) is None
    assert used.beyond(BudgetConfig(image_edits=3)) == "rounds.budget.image_edits=3 is spent: 3"
    assert used.beyond(BudgetConfig(tokens=1000, cost=1.5)) == "rounds.budget.cost=1.5 is spent: 2"
