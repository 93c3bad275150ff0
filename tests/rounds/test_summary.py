"""What a summary says of single queries, of pairs and of when stages worked; counted by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from repair_ray import tables
from repair_ray.config import parse_config
from repair_ray.rounds.ending import Ended
from repair_ray.rounds.summary import make_summary
from repair_ray.run import Recipe, Run

ONE = Ended(1, 1, None)


def test_what_changed(tmp_path: Path) -> None:
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

    ranked("base/metrics", [1, 2, 3, 0], [4, 4])
    ranked("round-1/metrics", [1, 1, 3, 0], [1, 1])
    ranked("controls/half/metrics", [2, 1, 3, 0], [1, 1])
    run.ready("round-1/training", Recipe({}))
    run.finish("round-1/training", Recipe({}), 1.0, training={"items_encoded": 8}, corrected=2)
    found = make_summary(run, config, ONE)
    (made,) = found["rounds"]
    assert made["corrected"] == 2
    assert found["controls"]["half"]["corrected"] is None
    assert list(found["changes"]) == ["base", "half"]  # the other control was not evaluated
    assert found["changes"]["base"]["i2t"].items() >= {"fixed": 1, "broken": 0, "right_in_both": 1}.items()
    # Two of two coins on one side: 2 / 4.
    assert found["changes"]["base"]["t2i"].items() >= {"fixed": 2, "broken": 0, "p": 0.5}.items()
    assert found["changes"]["half"]["i2t"].items() >= {"fixed": 1, "broken": 0}.items()
    (training,) = [stage for stage in found["stages"] if stage["name"] == "round-1/training"]
    assert training["seconds"] == 1.0 and 0 <= training["finished"] - training["started"] < 60

    # Of two rounds of which the second was rolled back, and where both were.
    ranked("round-2/metrics", [2, 2, 2, 0], [4, 4])
    assert make_summary(run, config, Ended(2, 1, "worse"))["changes"] == found["changes"]
    assert make_summary(run, config, Ended(2, 0, "worse"))["changes"] == {}
    second = make_summary(run, config, Ended(2, 2, "all"))["changes"]["base"]["i2t"]
    assert second.items() >= {"fixed": 0, "broken": 1, "wrong_in_both": 2}.items()


def test_metrics_that_kept_no_ranks_tell_no_changes(tmp_path: Path) -> None:
    run = Run(tmp_path)
    for product in ("base/metrics", "round-1/metrics"):
        run.ready(product, Recipe({}))
        run.finish(product, Recipe({}), 1.0, metrics={})
    assert make_summary(run, parse_config({"data": {"path": "x"}}), ONE)["changes"] == {}
