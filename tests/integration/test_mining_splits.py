"""Failures of a split that the retriever was not trained on: another split, and cross-fitting by folds."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow.parquet as pq
import pytest

from repair_ray.run import Run
from repair_ray.stages.mine import fold_of

pytestmark = [pytest.mark.integration, pytest.mark.whole_runs]

SHORT = ("base.steps=6", "training.steps=6", "mining.budget=40", "edit.candidates=1")


def _finished(small_run: Any, folder: Any, *settings: str) -> Run:
    run = type(small_run)(folder)
    ended = run.finish(*SHORT, *settings)
    assert ended.returncode == 0, ended.stderr[-3000:]
    return Run(run.folder)


def test_each_fold_is_mined_by_a_retriever_that_never_saw_it(
    small_run: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    run = _finished(small_run, tmp_path_factory.mktemp("folds"), "mining.folds=2", "controls=[]")
    images = [row for row in run.read("data/images").to_pylist() if row["split"] == "train"]
    fold = {row["image_id"]: fold_of(row["group_id"], 2) for row in images}
    sizes = Counter(fold.values())
    image_of = {row["caption_id"]: row["image_id"] for row in run.read("data/captions").to_pylist()}
    for number in (0, 1):
        trained_on = pq.read_table(run.folder / f"folds/{number}/training/items/images.parquet")
        assert len(trained_on) == len(images) - sizes[number]
        mined = run.read(f"round-1/folds/{number}/failures").to_pylist()
        assert {fold[image_of.get(row["query_id"], row["query_id"])] for row in mined} == {number}
    parts = sum(run.manifest(f"round-1/folds/{number}/failures")["rows"] for number in (0, 1))
    assert run.manifest("round-1/failures")["rows"] == parts > 0
    # Other folds hold other items: their retrievers must be trained anew, and not only the failures be mined again.
    again = type(small_run)(run.folder.parent).finish(*SHORT, "mining.folds=3", "controls=[]", "--redo", "failures")
    assert again.returncode == 2 and "folds/0/training" in again.stderr and "left_out was" in again.stderr


def test_mining_the_validation_split_trains_on_it(small_run: Any, tmp_path_factory: pytest.TempPathFactory) -> None:
    run = _finished(
        small_run, tmp_path_factory.mktemp("validation"), "mining.split=validation", "controls=[vanilla_equal_compute]"
    )
    split = {row["image_id"]: row["split"] for row in run.read("data/images").to_pylist()}
    split |= {row["caption_id"]: row["split"] for row in run.read("data/captions").to_pylist()}
    assert {split[row["query_id"]] for row in run.read("round-1/failures").to_pylist()} == {"validation"}
    trained_on = pq.read_table(run.folder / "round-1/training/items/images.parquet")
    assert len(trained_on) >= 80 + 30
    control = pq.read_table(run.folder / "controls/vanilla_equal_compute/training/items/images.parquet")
    assert len(control) == 80 + 30, "a control without edits has the same data"
    # Trained on, so no longer there to choose a checkpoint by: the last one wins.
    assert not (run.folder / "round-1/training/validation").exists()
