"""`repair-ray san` whole, on a few made clips: products, resuming, oracles, controls, and settings that are refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from repair_ray import tables
from repair_ray.cli import app
from repair_ray.clips.job import run_clips
from repair_ray.config import ConfigError, parse_section
from repair_ray.run import Run, RunError
from repair_ray.sections.clips import ClipsConfig
from tests.test_cli import refuse

QUICK = {"steps": 20, "batch_size": 16, "validate_every": 10, "lr": 3e-3}


def config(output: Path, **changes: Any) -> ClipsConfig:
    tree: dict[str, Any] = {
        "name": "few",
        "output": str(output),
        "data": {"world": {"language": "en", "train": 60, "validation": 10, "test": 20}},
        "tower": {"embed": 16},
        "base": QUICK,
        "training": QUICK,
        "negatives": {"alpha": -1.0, "beta": -1.0, "nearest": 2},
        "controls": {"vanilla": None, "random": {"similarity": "random"}, "meaning": {"confusable": "mean_alike.csv"}},
        "stress": {"confusable": "look_alike.csv"},
        "bootstrap": 50,
    }
    return parse_section(ClipsConfig, {**tree, **changes})


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run; tests only read it."""
    folder = tmp_path_factory.mktemp("clips")
    run_clips(config(folder))
    return folder


@pytest.fixture
def output(finished: Path, tmp_path: Path) -> Path:
    """A copy that a test may change."""
    shutil.copytree(finished, tmp_path / "runs")
    return tmp_path / "runs"


def summary(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "few" / "summary.json").read_text()))


def test_products_and_figures(finished: Path) -> None:
    run, found = Run(finished / "few"), summary(finished)
    assert list(found["variants"]) == ["base", "meaning", "random", "san", "vanilla"]
    for figures in found["variants"].values():
        assert figures["i2t"]["n"] == figures["t2i"]["n"] == figures["fine"]["items"] == 20
        assert 0 <= figures["fine"]["r@1"] <= 100 and figures["fine"]["chance"] == pytest.approx(20, abs=1)
    assert found["circular"] is None and found["oracle"]["kind"] == "list"
    assert found["clips"] == {"problems": {}, "splits": {"train": 60, "validation": 10, "test": 20}, "width": 128}
    negatives = run.read("san/negatives").to_pylist()
    kept = [row for row in negatives if row["status"] == tables.OK]
    assert {row["kind"] for row in kept} == {tables.NEGATIVE} and len({row["failure_id"] for row in negatives}) == len(
        negatives
    )
    captions = {row["clip_id"]: row["captions"] for row in run.read("data/clips").to_pylist()}
    for row in kept:
        (caption,) = captions[row["query_id"]]
        changed = [(a, b) for a, b in zip(caption.split(), row["text"].split(), strict=True) if a != b]
        assert len(changed) == 1 and f"{changed[0][0]} -> {changed[0][1]}" == row["instruction"]
    meaning = run.read("controls/meaning/confusable").to_pylist()
    assert {row["other"] for row in meaning if row["word"] == "rain"} == {"drizzle"}
    prototypes = run.read("san/prototypes").to_pylist()
    assert all(len(row["vector"]) == 16 for row in prototypes)
    assert (run.manifest("base/training") or {})["training"]["history"][-1]["step"] == 20


def test_a_second_run_makes_nothing_and_other_settings_are_refused(output: Path) -> None:
    manifests = {path: path.read_text() for path in output.rglob("manifest.json")}
    run_clips(config(output))
    assert {path: path.read_text() for path in output.rglob("manifest.json")} == manifests
    with pytest.raises(RunError, match=r"san/negatives .*negatives.per_caption was 4, is now 2"):
        run_clips(config(output, negatives={"alpha": -1.0, "beta": -1.0, "nearest": 2, "per_caption": 2}))
    with pytest.raises(RunError, match=r"data/world .*world.train was 60, is now 61"):
        run_clips(config(output, data={"world": {"language": "en", "train": 61, "validation": 10, "test": 20}}))


def test_it_goes_on_where_it_stopped_to_the_same_figures(output: Path) -> None:
    before = summary(output)
    run = Run(output / "few")
    run.redo("san/training")
    run.redo("stress")
    shutil.rmtree(output / "few" / "controls" / "random" / "training", ignore_errors=True)
    again = run_clips(config(output))
    assert again["variants"] == before["variants"]


def test_without_an_oracle_of_its_own_the_test_says_that_it_is_circular(output: Path) -> None:
    found = run_clips(config(output, stress={}), redo=["stress"])
    assert found["circular"] == "circular: the oracle is what made the negatives of san/confusable"
    assert found["oracle"]["kind"] == "visual"


def test_other_features_of_the_same_clips_make_an_oracle(output: Path, tmp_path: Path) -> None:
    table = pq.read_table(output / "few" / "data" / "world" / "clips.parquet")
    turned = np.linalg.qr(np.random.default_rng(0).normal(size=(128, 128)))[0][:, :40]
    other = [(np.array(frames) @ turned).tolist() for frames in table["features"].to_pylist()]
    pq.write_table(pa.table({"clip_id": table["clip_id"], "features": other}), tmp_path / "other.parquet")
    found = run_clips(config(output, stress={"features": str(tmp_path / "other.parquet")}), redo=["stress"])
    assert found["circular"] is None and found["oracle"]["kind"] == "visual"
    run = Run(output / "few")
    assert (run.manifest("oracle/clips") or {})["clips"]["width"] == 40
    assert found["oracle"]["weights"] != run_clips(config(output, stress={}), redo=["stress"])["oracle"]["weights"]


def test_own_files_with_rows_that_cannot_be_used(output: Path, tmp_path: Path) -> None:
    table = pq.read_table(output / "few" / "data" / "world" / "clips.parquet")
    rows = table.to_pylist()
    rows[3]["features"] = []
    (tmp_path / "own").mkdir()
    pq.write_table(pa.Table.from_pylist(rows, table.schema), tmp_path / "own" / "clips.parquet")
    own = config(tmp_path / "runs2", data={"path": str(tmp_path / "own")}, controls={}, stress={})
    found = run_clips(own)
    assert found["clips"]["problems"] == {"no_frames": 1} and found["clips"]["splits"]["train"] == 59
    bad = [row for row in Run(tmp_path / "runs2" / "few").read("data/clips").to_pylist() if row["status"] != tables.OK]
    assert [row["reason"] for row in bad] == ["no_frames"] and ":3" in bad[0]["source"]


def test_thresholds_that_nothing_reaches(output: Path) -> None:
    far = {"alpha": 0.999, "beta": 0.5, "nearest": 2}
    with pytest.raises(RunError, match=r"san/confusable: no visual token .*negatives.alpha=0.999.*the nearest has 0\."):
        run_clips(config(output, negatives=far), redo=["san/prototypes"])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data": {}}, "set either data.path or data.world"),
        ({"controls": {"san": None}}, "'san' is no name for a control"),
        ({"controls": {"a": {"betta": 1}}}, "controls.a: betta: Extra inputs"),
        ({"tower": {"pretrained": "x.pt"}}, "tower.text=words has no weights to load"),
        ({"tower": {"layers": 1, "embed": 10, "heads": 4}}, "tower.heads=4 does not divide tower.embed=10"),
        ({"stress": {"confusable": "a.csv", "features": "b"}}, "set either stress.confusable or stress.features"),
        ({"split": "train"}, "split=train is what is trained on"),
        ({"negativs": {}}, "unknown key 'negativs'; did you mean 'negatives'"),
    ],
)
def test_wrong_settings(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        config(tmp_path, **changes)


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    small = ["data.world.train=40", "data.world.validation=5", "data.world.test=10", "base.steps=4", "training.steps=4"]
    small += ["negatives.alpha=-1", "negatives.beta=-1", "controls={vanilla: null}", "tower.embed=8"]
    ended = CliRunner().invoke(app, ["san", "demo", *small])
    assert ended.exit_code == 0, ended.output
    shown = " ".join(ended.stdout.split())
    for part in ("base", "san", "vanilla", "a tie is wrong", "look_alike.csv", "runs/signs/summary.json"):
        assert part in shown
    assert "no config file at gone.yaml" in refuse("san", "gone.yaml")
    assert "unknown key 'negatives.betta'" in refuse("san", "demo", "negatives.betta=1")
    (tmp_path / "mine.yaml").write_text("data: {path: gone.parquet}\n")
    assert "no such file or folder: gone.parquet" in refuse("san", "mine.yaml")
