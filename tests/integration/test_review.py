"""A run of two rounds goes on after people have refused an edit of its first: what hangs on it is made anew."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from repair_ray import tables
from repair_ray.repair_review.edits import ANSWERS, accepted_edits
from repair_ray.repair_review.sample import sample_of
from repair_ray.repair_review.stats import stats_of
from repair_ray.review.annotations import Annotators
from repair_ray.run import Run

pytestmark = [pytest.mark.integration, pytest.mark.whole_runs]

SETTINGS = ("mining.keep=above_gt", "training.steps=12", "controls=none", "selection.min_scaffold=-1.0", "rounds=2")


def test_a_refused_edit_is_gone_from_the_rounds_that_follow(small_run: Any, tmp_path: Path) -> None:
    made = type(small_run)(tmp_path)
    ended = made.finish(*SETTINGS)
    assert ended.returncode == 0, ended.stderr[-3000:]
    run = Run(made.folder)
    before = dict(run.products())
    accepted = accepted_edits(run, "round-1/edits")
    sample = sample_of(run, 1, 4)
    assert {row["item_id"] for row in sample} <= accepted.keys()
    refused = sample[0]
    with Annotators(run.path(ANSWERS), ("yes", "no", "unsure"), ["anna"]) as own:
        own.of("anna").put(f"{refused['item_id']}/valid", "no")
        own.of("anna").put(f"{sample[1]['item_id']}/valid", "yes")
    assert stats_of(run)["total"]["valid"]["precision"]["percent"] == 50.0

    # Nobody asked to listen: the run is as it was.
    assert made.finish(*SETTINGS).returncode == 0
    assert {name: m for name, m in run.products() if name in before} == before

    ended = made.finish(*SETTINGS, "review.exclude=any")
    assert ended.returncode == 0, ended.stderr[-3000:]
    after = dict(run.products())
    same = {name for name, manifest in before.items() if after.get(name) == manifest}
    assert {"data/images", "base/training", "round-1/failures", "round-1/verdicts", "round-1/edits"} <= same
    assert not same & {"round-1/training", "round-1/metrics", "round-2/failures", "round-2/edits", "round-2/training"}
    assert after["round-1/edits_reviewed"]["statuses"][tables.REFUSED] == 1
    assert after["round-1/training"]["corrected"] == before["round-1/training"]["corrected"] - 1
    kept = run.read("round-2/repairs", ["failure_id"])["failure_id"].to_pylist()
    assert refused["failure_id"] not in kept and len(kept) == len(accepted) - 1
    summary = made.summary()
    assert summary["rounds"][0]["edits"]["refused"] == {"valid": 1}

    # The same once more changes nothing.
    assert made.finish(*SETTINGS, "review.exclude=any").returncode == 0
    assert dict(run.products()) == after
