"""The command makes a whole round, finds it ready, refuses another one in its place, makes parts of it again."""

from __future__ import annotations

import math
import shutil
from pathlib import Path
from typing import Any

import open_clip
import pytest

from repair_ray.engines.encoder import resolve_model

pytestmark = [pytest.mark.integration, pytest.mark.whole_runs]

METRICS = {"r@1", "r@5", "r@10", "mrr", "r@1_ci"}


@pytest.fixture(scope="module")
def copied(small_run: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A copy of the undisturbed run, for tests that go on with it."""
    output = tmp_path_factory.mktemp("copied")
    shutil.copytree(small_run.folder, output / "small")
    return type(small_run)(output)


def _check_metrics(metrics: dict[str, Any]) -> None:
    assert set(metrics) == {"i2t", "t2i"}
    for values in metrics.values():
        assert set(values) >= METRICS
        low, high = values["r@1_ci"]
        assert 0 <= low <= values["r@1"] <= high <= 100
        assert values["r@1"] <= values["r@5"] <= values["r@10"] <= 100
        assert values["r@1"] <= values["mrr"] <= 100


def test_summary_holds_what_programs_read(small_run: Any) -> None:
    summary = small_run.summary()
    _check_metrics(summary["base"]["metrics"])
    assert len(summary["rounds"]) == 1
    record = summary["rounds"][0]
    assert {"failures", "verdicts", "edits", "truth", "metrics"} <= set(record)
    _check_metrics(record["metrics"])
    assert record["failures"] == {"i2t": 150, "t2i": 150}
    assert sum(record["verdicts"].values()) == 300
    assert set(record["edits"]["accepted"]) == {"i2t", "t2i"}
    assert all(record["edits"]["accepted"].values())
    accepted, rejected = record["edits"]["accepted"], record["edits"]["rejected"]
    assert sum(accepted.values()) + sum(rejected.values()) == record["verdicts"]["valid"]
    assert set(summary["controls"]) == {"vanilla_equal_compute"}
    _check_metrics(summary["controls"]["vanilla_equal_compute"]["metrics"])


def test_truth_is_measured(small_run: Any) -> None:
    truth = small_run.summary()["rounds"][0]["truth"]
    assert truth["audit_precision"] >= 95
    assert truth["audit_recall"] >= 85
    assert min(truth["edit_validity"].values()) >= 92


def test_stages_are_timed(small_run: Any) -> None:
    stages = {stage["name"]: stage for stage in small_run.summary()["stages"]}
    assert {f"round-1/{name}" for name in ("embeddings", "failures", "verdicts", "edits", "training")} <= set(stages)
    for stage in stages.values():
        assert {"name", "seconds", "rows", "rows_per_second"} <= set(stage)
        assert stage["rows"] > 0
        assert math.isfinite(stage["rows_per_second"])
    assert stages["data/images"]["rows"] == 150
    assert stages["data/captions"]["rows"] == 750
    assert stages["round-1/embeddings"]["rows"] == 6 * 120


def test_control_encodes_as_much_as_the_round(small_run: Any) -> None:
    summary = small_run.summary()
    items = summary["training"]["round-1/training"]["items_encoded"]
    assert summary["controls"]["vanilla_equal_compute"]["items"] == pytest.approx(items, rel=0.03)


def test_report_stands_alone(small_run: Any) -> None:
    page = (small_run.folder / "report.html").read_text()
    assert "data:image/" in page
    assert 'src="http' not in page


@pytest.mark.parametrize("product", ["base/training", "round-1/training", "controls/vanilla_equal_compute/training"])
def test_weights_load_into_open_clip(small_run: Any, product: str) -> None:
    path = small_run.folder / product / "model.safetensors"
    model = open_clip.create_model(resolve_model("tiny-64"), pretrained=str(path))
    assert sum(value.numel() for value in model.parameters()) > 0
    assert not (path.parent / "state").exists()


def test_same_command_again_does_nothing(copied: Any) -> None:
    before, files = copied.manifests(), _times(copied.folder)
    ended = copied.finish()
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert copied.manifests() == before
    changed = {name for name, time in _times(copied.folder).items() if files.get(name) != time}
    assert changed == {"config.json", "summary.json", "report.html"}


@pytest.mark.parametrize(
    ("override", "product", "key"),
    [
        ("training.lr=2e-3", "round-1/training", "training.lr was 0.001, is now 0.002"),
        ("data.world.seed=5", "data/images", "data.world.seed was 0, is now 5"),
    ],
)
def test_a_changed_setting_is_refused_by_name(copied: Any, override: str, product: str, key: str) -> None:
    before = copied.manifests()
    ended = copied.finish(override)
    assert ended.returncode == 2
    assert "Traceback" not in ended.stderr
    for part in (product, key, f"--redo {product}"):
        assert part in ended.stderr
    assert copied.manifests() == before


def test_redo_makes_a_stage_again_and_what_hangs_on_it(copied: Any) -> None:
    before = copied.manifests()
    ended = copied.finish("--redo", "edits", "edit.candidates=1", "selection.d_i2t=1", "controls=[]")
    assert ended.returncode == 0, ended.stderr[-3000:]
    after = copied.manifests()
    changed = {name for name in after if after[name] != before[name]}
    assert changed == {f"round-1/{name}" for name in ("edits", "training", "evaluation", "metrics", "truth")}
    # The control has the round's compute as its measure, so it hangs on the round; here it is not asked for again.
    control = {f"controls/vanilla_equal_compute/{name}" for name in ("training", "evaluation", "metrics")}
    assert set(before) - set(after) == control


def _times(folder: Path) -> dict[str, int]:
    return {
        path.relative_to(folder).as_posix(): path.stat().st_mtime_ns
        for path in folder.rglob("*")
        if path.is_file() and path.name != ".lock"
    }
