"""The first rows of real files: what is read, and what is told of those that cannot be used."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from repair_ray.config import Config, parse_config
from repair_ray.doctor.data import check_data
from repair_ray.doctor.trial_config import trial_config
from repair_ray.stages.sources import items_of, sources_of

SAMPLE = Path(__file__).parents[1] / "fixtures/emoji/sample.parquet"


def config(**data: Any) -> Config:
    return parse_config({"data": data, "retriever": {"model": "tiny-64"}, "base": {"steps": 1}})


def png(colour: str = "red") -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (8, 6), colour).save(file, "PNG")
    return file.getvalue()


def table(path: Path, pictures: list[bytes | None], split: str = "train") -> str:
    rows = [
        {"image": {"bytes": data, "path": None}, "caption": f"number {i}", "split": split}
        for i, data in enumerate(pictures)
    ]
    image = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    schema = pa.schema([("image", image), ("caption", pa.string()), ("split", pa.string())])
    pq.write_table(pa.Table.from_pylist(rows, schema), path)
    return str(path)


def test_first_rows_of_one_file_with_every_split() -> None:
    found, first = check_data(config(path=str(SAMPLE), caption_column="captions"), rows=5)
    assert {split: len(records) for split, records in first.records.items()} == {
        "train": 5,
        "validation": 5,
        "test": 5,
    }
    assert [finding.state for finding in found] == ["ok", "ok"]
    assert "test 5, train 5, validation 5" in found[0].found
    assert "decodes: test " in found[1].found


def test_a_path_that_is_not_there(tmp_path: Path) -> None:
    (finding,), first = check_data(config(train=str(tmp_path / "no.parquet"), test=str(SAMPLE)))
    assert finding.state == "failed" and f"data.train: there is nothing at {tmp_path / 'no.parquet'}" in finding.found
    assert first.records == {}


def test_a_first_picture_that_cannot_be_read(tmp_path: Path) -> None:
    train = table(tmp_path / "train.parquet", [b"<html>no picture</html>", png()])
    test = table(tmp_path / "test.parquet", [png()], "test")
    found, _ = check_data(config(train=train, test=test))
    failed = [finding for finding in found if finding.state == "failed"]
    assert [finding.check for finding in failed] == ["first picture"]
    assert f"train, {train}:0: html" in failed[0].found


def test_rows_that_cannot_be_used_and_a_split_without_rows(tmp_path: Path) -> None:
    train = table(tmp_path / "train.parquet", [None, png(), None])
    found, _ = check_data(config(path=train))
    states = {finding.found: finding.state for finding in found}
    assert [state for text, state in states.items() if "no row of test" in text] == ["warning"]
    (text,) = [text for text, state in states.items() if "2 unusable rows" in text]
    assert f"{train}:0: no_image" in text and states[text] == "warning"
    # Where each split has a path of its own, a split without one is a fault of the config.
    found, _ = check_data(config(train=train))
    assert [finding.state for finding in found if "no row of test" in finding.found] == ["failed"]


def test_a_file_that_is_no_table(tmp_path: Path) -> None:
    (tmp_path / "data.parquet").write_text("hello")
    (finding,), _ = check_data(config(path=str(tmp_path / "data.parquet")))
    assert finding.state == "failed" and "which no reader takes" in finding.found


class TestTrialConfig:
    def test_its_files_hold_the_first_rows(self, tmp_path: Path) -> None:
        made = config(path=str(SAMPLE), caption_column="captions", group_column="codepoints")
        _, first = check_data(made, rows=5)
        trial = trial_config(made, first, tmp_path)
        assert trial.run_dir == tmp_path / "trial"
        read = list(items_of(trial.data, sources_of(trial.data, tmp_path)))
        assert len(read) == 15
        for split in ("train", "validation", "test"):
            there = [(item.image.data, item.captions, item.group) for name, item in read if name == split]
            assert there == [(r.image.data, r.captions, r.group) for r in first.records[split]]

    def test_pictures_that_lie_in_files_stay_there(self, tmp_path: Path) -> None:
        (tmp_path / "a b.png").write_bytes(png())
        entries = [
            {"filename": "a b.png", "imgid": 0, "split": split, "sentids": [0], "sentences": [{"raw": "red"}]}
            for split in ("train",)
        ]
        (tmp_path / "k.json").write_text(json.dumps({"images": entries, "dataset": "x"}))
        made = config(path=str(tmp_path / "k.json"))
        _, first = check_data(made)
        trial = trial_config(made, first, tmp_path)
        items = dict(items_of(trial.data, sources_of(trial.data, tmp_path)))
        # The test split begins further on, if anywhere: rows of another stand in for it.
        assert set(items) == {"train", "test"}
        assert {item.image.uri for item in items.values()} == {str(tmp_path / "a b.png")}

    def test_what_is_kept_and_what_is_small(self, tmp_path: Path) -> None:
        tree = {
            "data": {"world": {"train": 1000, "validation": 5, "test": 400, "seed": 3}},
            "retriever": {"model": "tiny-64"},
            "base": {"steps": 300, "batch_size": 128},
            "training": {"steps": 100, "batch_size": 40, "workers": 20, "lr": 0.5},
            "mining": {"keep": "above_gt", "folds": 4},
            "controls": "all",
            "pool": {"actors": 7},
            "language": {"backend": "openai", "model": "m", "answers": "/shared", "max_changes": 2},
            "objective": {"placement": "both"},
        }
        made = parse_config(tree)
        trial = trial_config(made, check_data(made)[1], tmp_path)
        world = trial.data.world
        assert world is not None
        # A row for each of the 20 workers; no more of a split than it has.
        assert (world.train, world.validation, world.test, world.seed) == (20, 5, 20, 3)
        assert trial.training.steps == 2 and trial.base is not None and trial.base.steps == 2
        assert (trial.training.workers, trial.training.lr, trial.training.batch_size) == (20, 0.5, 40)
        assert trial.mining.keep == "top_k" and trial.mining.folds == 0, "a good retriever may fail in no row"
        assert trial.controls == () and trial.pool.actors == 1
        assert trial.objective == made.objective
        # The same questions as in the run, so that a shared answer is not paid for twice.
        assert (trial.language.answers, trial.language.max_changes) == ("/shared", 2)

    @pytest.mark.parametrize(
        ("strategy", "controls", "expected"),
        [
            ("repair", [], "repair"),
            ("vanilla", [], "vanilla"),
            ("vanilla", ["mined"], "mined"),
            ("mined", ["error_agnostic"], "error_agnostic"),
        ],
    )
    def test_stages_of_controls_are_tried(
        self, tmp_path: Path, strategy: str, controls: list[str], expected: str
    ) -> None:
        tree = {"data": {"world": {}}, "strategy": strategy, "controls": controls}
        assert trial_config(parse_config(tree), check_data(parse_config(tree))[1], tmp_path).strategy == expected
