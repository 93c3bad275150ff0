"""Who makes hard pairs: mined pairs without an edit, random pairs, failures of several folds."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from repair_ray import tables
from repair_ray.config import Config, parse_config
from repair_ray.run import CAPTIONS, IMAGES, Recipe, Run
from repair_ray.synthesis.strategies import merged_failures, paired_edits, random_failures

SIZE = 30


def config(**sections: Any) -> Config:
    return parse_config({"data": {"path": "x"}, **sections})


def commit(run: Run, product: str, kind: tables.Table, rows: list[dict[str, Any]]) -> None:
    run.ready(product, Recipe({}))
    run.commit(product, Recipe({}), kind, tables.to_table(rows, kind.schema), 0.0)


def failure(direction: str, query: str, candidate: str, rank: int = 1) -> dict[str, Any]:
    identity = tables.row_id(direction, query, candidate)
    pair = {"failure_id": identity, "direction": direction, "query_id": query, "candidate_id": candidate}
    return {**pair, "ground_truth_id": "g", "rank": rank, "score": 1 / rank, "status": tables.OK}


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """SIZE images of one caption each; the failures of image 0 and of caption 0, and a query without one."""
    run = Run(tmp_path)
    usual = {"split": "train", "status": tables.OK}
    commit(run, IMAGES, tables.IMAGES, [{"image_id": f"i{n}", "group_id": f"g{n}", **usual} for n in range(SIZE)])
    captions = [
        {"caption_id": f"c{n}", "image_id": f"i{n}", "group_id": f"g{n}", "text": f"t{n}", "text_key": f"t{n}", **usual}
        for n in range(SIZE)
    ]
    commit(run, CAPTIONS, tables.CAPTIONS, [{**row, "position": 0} for row in captions])
    rows = [failure("i2t", "i0", f"c{n}", n) for n in (1, 2, 3)] + [failure("t2i", "c0", f"i{n}", n) for n in (1, 2)]
    none = {"failure_id": "none", "direction": "i2t", "query_id": "i9", "status": tables.NO_FAILURE}
    commit(run, "failures", tables.FAILURES, [*rows, none])
    judged = [tables.OK, tables.REJECTED, tables.ERROR, tables.OK, tables.REJECTED]
    commit(
        run,
        "verdicts",
        tables.VERDICTS,
        [{**row, "status": status, "judgement": status} for row, status in zip(rows, judged, strict=True)],
    )
    return run


@pytest.mark.parametrize(
    ("audit", "expected"), [(True, {("i0", "c1"), ("c0", "i1")}), (False, {("i0", "c1"), ("i0", "c2"), ("c0", "i1")})]
)
def test_mined_pairs_pass_the_same_audit_as_edits(run: Run, audit: bool, expected: set[tuple[str, str]]) -> None:
    paired_edits(run, config(selection={"audit": audit}), "edits", "failures", "verdicts")
    rows = run.read("edits").to_pylist()
    assert {(row["query_id"], row["candidate_id"]) for row in rows if row["status"] == tables.OK} == expected
    assert {row["kind"] for row in rows} == {tables.PAIRED}
    assert run.made_from("edits") == {"failures": "failures", "verdicts": "verdicts"}
    # One pair a caption is the quota: without the audit the second of c0 is there, and says why it is not used.
    reasons = [row["reason"] for row in rows if row["status"] != tables.OK]
    assert reasons == ([] if audit else ["beyond the quota of its query"])


def test_random_pairs_are_as_many_for_a_query_and_none_is_right(run: Run) -> None:
    random_failures(run, config(), "drawn", "failures")
    rows = run.read("drawn").to_pylist()
    assert Counter((row["direction"], row["query_id"]) for row in rows) == {("i2t", "i0"): 3, ("t2i", "c0"): 2}
    assert len({row["failure_id"] for row in rows}) == 5
    for row in rows:
        assert row["failure_id"] == tables.row_id(row["direction"], row["query_id"], row["candidate_id"])
        assert row["candidate_id"] != ("c0" if row["direction"] == "i2t" else "i0")
        assert row["candidate_id"][0] == ("c" if row["direction"] == "i2t" else "i")


def test_random_pairs_follow_the_seed(run: Run) -> None:
    drawn = []
    for product, seed in (("first", 0), ("again", 0), ("other", 1)):
        random_failures(run, config(seed=seed), product, "failures")
        drawn.append(run.read(product)["candidate_id"].to_pylist())
    assert drawn[0] == drawn[1] != drawn[2]


def test_the_budget_is_for_all_folds_together(run: Run) -> None:
    for fold in range(2):
        rows = [failure("i2t", f"i{fold}{n}", f"c{n}", rank=1 + fold + 2 * n) for n in range(3)]
        commit(run, f"fold{fold}", tables.FAILURES, rows)
    merged_failures(run, config(mining={"budget": 3}), "all", ["fold0", "fold1"])
    rows = run.read("all").to_pylist()
    assert len(rows) == 6
    assert sorted(row["rank"] for row in rows if row["status"] == tables.OK) == [1, 2, 3]
    assert {row["reason"] for row in rows if row["status"] != tables.OK} == {"beyond mining.budget"}
