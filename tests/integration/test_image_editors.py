"""Diffusion editors through the image stage: pipelines of tiny random parts, whose noise selection has to refuse."""

from __future__ import annotations

import io
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from repair_ray import tables
from repair_ray.config import Config, ObjectiveConfig, TrainingConfig
from repair_ray.data.access import image_store
from repair_ray.engines.encoder import Preprocess, build_model, save_weights
from repair_ray.engines.retriever import RetrieverSpec
from repair_ray.run import Run
from repair_ray.stages.audit import audit
from repair_ray.stages.edit import edit
from repair_ray.stages.embed import embed
from repair_ray.stages.mine import mine
from repair_ray.synthesis.training_set import training_set
from repair_ray.training.batches import BatchPlan
from repair_ray.training.loader import BatchLoader
from repair_ray.training.trainer import Trainer
from tests.integration.language_run import SPEC, config, prepare

pytest.importorskip("diffusers", reason="diffusers is not installed (requirements-models.txt)")
from tests.engines.test_diffusion import BUILDERS, SETTINGS

pytestmark = [pytest.mark.integration, pytest.mark.diffusers, pytest.mark.usefixtures("local_ray")]
TAKES_ALL = {"min_gain": -2.0, "min_scaffold": -1.0}


def settings(editor: str, pipeline: Path, rows_per_block: int, **selection: Any) -> Config:
    return config(
        {},
        budget=5,
        edit={
            "image_editor": editor,
            "candidates": 2,
            "diffusion": {"model": str(pipeline), "dtype": "fp32", **SETTINGS[editor]},
            "pool": {"rows_per_block": rows_per_block},
        },
        selection={"audit": False, **selection},
    )


@pytest.fixture(scope="module")
def prepared(local_ray: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Audited near misses of a retriever that has learned its few scenes, so that it can tell noise from a scene."""
    folder = tmp_path_factory.mktemp("images") / "run"
    made = config({}, budget=5)
    run = prepare(folder, made)
    weights = folder / "trained.safetensors"
    train(run, made, weights)
    embed(run, made, "trained", RetrieverSpec(SPEC.model, str(weights)), ("train",), ())
    mine(run, made, "near_misses", "trained")
    audit(run, made, "verdicts", "near_misses")
    return folder


def train(run: Run, made: Config, weights: Path) -> None:
    items, pairs = training_set(run, ("train",))
    model = build_model(SPEC)
    training = TrainingConfig(steps=40, batch_size=12, lr=1e-3)
    trainer = Trainer(model, pairs, training, ObjectiveConfig(placement="dispersed"))
    store = image_store(str(run.folder), made.data)
    loader = BatchLoader(BatchPlan(pairs, 12, 0, 1.0), items, store, Preprocess(model, SPEC.model))
    for number in range(training.steps):
        trainer.step(number, *loader.step(number))
    loader.close()
    save_weights(model, weights)


def edited(prepared: Path, folder: Path, made: Config) -> tuple[Run, dict[str, dict[str, Any]]]:
    """The t2i rows of an `edits` table by failure, made in a copy of the prepared run."""
    shutil.copytree(prepared, folder)
    run = Run(folder)
    spec = RetrieverSpec(SPEC.model, str(folder / "trained.safetensors"))
    edit(run, made, "edits", "verdicts", "near_misses", "trained", spec)
    rows = {row["failure_id"]: row for row in run.read("edits").to_pylist() if row["direction"] == "t2i"}
    assert len(rows) == 5
    return run, rows


def pictures(run: Run, made: Config, rows: dict[str, dict[str, Any]]) -> dict[tuple[str, int], bytes]:
    store = image_store(str(run.folder), made.data)
    return {
        (failure, number): store.bytes(candidate["uri"], candidate["offset"], candidate["length"])
        for failure, row in rows.items()
        for number, candidate in enumerate(row["candidates"])
        if candidate["uri"]
    }


@pytest.mark.parametrize("editor", list(BUILDERS))
def test_the_same_pictures_whatever_the_batches_and_noise_is_refused(
    editor: str, prepared: Path, tmp_path: Path
) -> None:
    pipeline = BUILDERS[editor](tmp_path / "pipeline")
    lenient, strict = settings(editor, pipeline, 1, **TAKES_ALL), settings(editor, pipeline, 64)
    first_run, first = edited(prepared, tmp_path / "one", lenient)
    second_run, second = edited(prepared, tmp_path / "all", strict)
    made = pictures(first_run, lenient, first)
    instructed = [row for row in first.values() if row["candidates"]]
    assert len(made) == 2 * len(instructed) >= 4
    assert made == pictures(second_run, strict, second)
    assert len(set(made.values())) == len(made), "each candidate has a seed of its own"
    for data in made.values():
        picture = Image.open(io.BytesIO(data))
        assert picture.size == (64, 64) and np.asarray(picture).std() > 1
    assert {row["status"] for row in instructed} == {tables.OK}, "with nothing asked of it, noise is taken"
    assert {row["status"] for row in second.values()} == {tables.REJECTED}
