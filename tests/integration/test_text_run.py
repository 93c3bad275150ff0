"""A text-only run on Ray: made whole, made again, and stopped in the middle and gone on with from its checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import open_clip
import pytest
import torch
from safetensors.torch import load_file

from repair_ray.config import TextConfig, parse_section
from repair_ray.run import Run, RunError, read_json
from repair_ray.text_run import run_texts
from repair_ray.training.launch import launch
from repair_ray.training.texts.job import TEXTS, TextJob, start_spec
from repair_ray.training.texts.launch import train_texts
from repair_ray.world.captions import captions
from repair_ray.world.generate import make_scenes

pytestmark = [pytest.mark.integration, pytest.mark.whole_runs]

STEPS, STOP = 20, 12


def quiet(name: str, done: int, total: int) -> None:
    """Shows nothing."""


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> TextConfig:
    folder = tmp_path_factory.mktemp("texts")
    texts = [caption for scene in make_scenes(40, 0, 3, set()) for caption in captions(scene, 0)]
    (folder / "texts.txt").write_text("\n".join(texts[:150]) + "\n")
    pairs = [f"{n % 6},{texts[n].replace(',', ';')},{texts[n + 25].replace(',', ';')}" for n in range(150, 170)]
    (folder / "pairs.csv").write_text("\n".join(["score,sentence1,sentence2", *pairs]) + "\n")
    return parse_section(
        TextConfig,
        {
            "name": "undisturbed",
            "output": str(folder),
            "texts": str(folder / "texts.txt"),
            "retriever": {"model": "tiny-64"},
            "training": {
                "steps": STEPS,
                "batch_size": 16,
                "lr": 1e-3,
                "validate_every": 5,
                "checkpoint_every": 5,
                "cpus_per_worker": 1,
            },
            "objective": {"positive_mixing": {"margin": 0.5}, "hard_negative_mixing": {"k": 5, "pairs": 4}},
            "validation": str(folder / "pairs.csv"),
            "test": str(folder / "pairs.csv"),
        },
    )


@pytest.fixture(scope="module")
def undisturbed(config: TextConfig, local_ray: None) -> dict[str, Any]:
    return run_texts(config)


def history(folder: Path) -> dict[str, Any]:
    found = read_json(folder / "history.json")
    assert found is not None
    return found


def test_products(config: TextConfig, undisturbed: dict[str, Any]) -> None:
    run = Run(config.run_dir)
    assert [name for name, _ in run.products()] == ["data/texts", "data/validation", "data/test", "training", "metrics"]
    assert undisturbed["training"]["steps"] == STEPS
    assert undisturbed["training"]["texts_encoded"] == STEPS * 16 * 2
    steps = [record["step"] for record in undisturbed["training"]["history"]]
    assert steps == [5, 10, 15, 20]
    for record in undisturbed["training"]["history"]:
        assert {"simcse", "positive_mixing", "hard_negative_mixing", "validation"} <= set(record)
    best = max(record["validation"] for record in undisturbed["training"]["history"])
    found = undisturbed["metrics"]["validation"]["trained"]["metrics"]
    # What is measured at the end is the best checkpoint, by the same pairs.
    assert found["spearman"] == pytest.approx(best, abs=0.01)
    assert found["n"] == 20
    assert not (run.path("training") / "state").exists()
    made = run.manifest("training") or {}
    (workers,) = made["figures"]
    assert workers["batches"] == sum(part["steps"] for part in made["training"]["pace"]["by_step"]) == STEPS
    assert workers["rows_in"] == STEPS * 16 * 2


def test_open_clip_loads_the_weights(config: TextConfig, undisturbed: dict[str, Any]) -> None:
    folder = config.run_dir / "training"
    model, *_ = open_clip.create_model_and_transforms(f"local-dir:{folder}")
    saved = load_file(folder / "model.safetensors")
    assert all(torch.equal(saved[name], value) for name, value in model.state_dict().items())


def test_the_same_command_again_has_nothing_to_do(config: TextConfig, undisturbed: dict[str, Any]) -> None:
    before = {path: path.stat().st_mtime_ns for path in config.run_dir.rglob("manifest.json")}
    assert run_texts(config) == undisturbed
    assert {path: path.stat().st_mtime_ns for path in config.run_dir.rglob("manifest.json")} == before


def test_other_settings_are_refused_by_name(config: TextConfig, undisturbed: dict[str, Any]) -> None:
    other = config.model_copy(update={"objective": config.objective.model_copy(update={"temperature": 0.1})})
    with pytest.raises(RunError, match=r"objective.temperature was 0.05, is now 0.1\. Use --redo training"):
        run_texts(other)


def test_a_stopped_training_goes_on_from_its_checkpoint(
    config: TextConfig, undisturbed: dict[str, Any], tmp_path: Path
) -> None:
    """A worker fails at a step between checkpoints, each time it is started; the next command goes on."""

    def failing(settings: dict[str, Any]) -> None:
        from repair_ray.training.texts.trainer import TextTrainer
        from repair_ray.training.texts.worker import work

        step = TextTrainer.step

        def until(self: TextTrainer, number: int, *parts: Any) -> Any:
            with (Path(settings["job"].folder) / "steps").open("a") as file:
                file.write(f"{number}\n")
            if number == STOP:
                raise RuntimeError("stopped in the middle")
            return step(self, number, *parts)

        TextTrainer.step = until  # type: ignore[method-assign]
        work(settings["job"], settings["state"])

    job = TextJob(
        name="training",
        run=str(config.run_dir),
        folder=str(tmp_path),
        texts=TEXTS,
        validation="data/validation",
        spec=start_spec(config),
        training=config.training,
        objective=config.objective,
        seed=config.seed,
    )
    with pytest.raises(RunError, match="start again to go on from its last checkpoint"):
        launch(job, failing, quiet)
    taken = [int(line) for line in (tmp_path / "steps").read_text().split()]
    # Each new attempt begins at the checkpoint of step 10, not at 0.
    assert taken == [*range(STOP + 1), *[10, 11, 12] * 3]
    assert not (tmp_path / "model.safetensors").exists()
    record = train_texts(job, quiet)
    plain = history(config.run_dir / "training")
    assert record["history"] == [pytest.approx(validated) for validated in plain["history"]]
    for key in ("steps", "best_step", "texts_encoded"):
        assert record[key] == plain[key]
    weights = [load_file(folder / "model.safetensors") for folder in (config.run_dir / "training", tmp_path)]
    for name, value in weights[0].items():
        assert torch.allclose(weights[1][name], value, atol=1e-6), name
