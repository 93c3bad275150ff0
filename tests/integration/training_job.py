"""A training run of a few steps on random pictures, with and without Ray, and workers that do what a test says."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from safetensors.torch import load_file

from repair_ray.config import ObjectiveConfig, TrainingConfig
from repair_ray.data.store import ImageStore
from repair_ray.engines.encoder import Preprocess, build_model
from repair_ray.engines.retriever import RetrieverSpec
from repair_ray.training.batches import BatchPlan
from repair_ray.training.items import TrainingItems, write_items
from repair_ray.training.job import WEIGHTS, Job
from repair_ray.training.launch import launch
from repair_ray.training.loader import BatchLoader
from repair_ray.training.pairs import PairSet
from repair_ray.training.trainer import Trainer

PICTURES = 12
STEPS = 8
SEED = 5
SETTINGS: dict[str, Any] = {
    "steps": STEPS,
    "batch_size": 8,
    "lr": 1e-3,
    "validate_every": STEPS,
    "checkpoint_every": 2,
    "workers": 2,
    "decode_threads": 1,
}
At = Callable[[int, int, int], None]


def make_job(folder: Path, **changes: Any) -> Job:
    """A run in `folder`, which has its pictures with it."""
    product = folder / "training"
    (product / "items").mkdir(parents=True, exist_ok=True)
    draws = np.random.default_rng(0)
    for n in range(PICTURES):
        Image.fromarray(draws.integers(0, 256, (64, 64, 3), np.uint8)).save(folder / f"{n}.png")
    items = TrainingItems([(f"{n}.png", None, None) for n in range(PICTURES)], [f"word {n}" for n in range(PICTURES)])
    write_items(str(product / "items"), items, pairs())
    return Job(
        name="training",
        folder=str(product),
        items=str(product / "items"),
        validation=None,
        spec=RetrieverSpec("tiny-64"),
        training=TrainingConfig.model_validate({**SETTINGS, **changes}),
        objective=ObjectiveConfig(),
        store={"root": str(folder)},
        seed=SEED,
    )


def pairs() -> PairSet:
    every = np.arange(PICTURES)
    return PairSet(every, every, every, every, anchors=every)


def train_alone(job: Job) -> dict[str, torch.Tensor]:
    """The weights of the same training in this process, one worker, without Ray."""
    model = build_model(job.spec, "cpu", job.seed)
    trainer = Trainer(model, pairs(), job.training, job.objective, seed=job.seed)
    items = TrainingItems([(f"{n}.png", None, None) for n in range(PICTURES)], [f"word {n}" for n in range(PICTURES)])
    preprocess = Preprocess(model, job.spec.model)
    loader = BatchLoader(
        BatchPlan(pairs(), job.training.batch_size, job.seed), items, ImageStore(**job.store), preprocess
    )
    for step in range(job.training.steps):
        trainer.step(step, *loader.step(step))
    loader.close()
    return model.state_dict()


def train_on_ray(job: Job, at: At | None = None) -> dict[str, torch.Tensor]:
    """The weights that `launch` leaves. Each step of each worker is written down; see `steps_done`.

    `at` is called in the worker before each step: with the step, the worker's rank, and how many starts of the workers
    there have been before this one.
    """
    log = Path(job.folder) / "log"
    log.mkdir(exist_ok=True)

    def worker(config: dict[str, Any]) -> None:
        import ray.train

        from repair_ray.training.loop import work
        from repair_ray.training.trainer import Trainer

        context = ray.train.get_context()
        rank, size = context.get_world_rank(), context.get_world_size()
        before = len(list(log.glob(f"*-{rank}.jsonl")))
        file = log / f"{before}-{rank}.jsonl"
        node = ray.get_runtime_context().get_node_id()
        plain = Trainer.step

        def step(self: Trainer, number: int, *rest: Any) -> Any:
            with file.open("a") as lines:
                lines.write(json.dumps({"step": number, "node": node, "workers": size}) + "\n")
            if at is not None:
                at(number, rank, before)
            return plain(self, number, *rest)

        Trainer.step = step  # type: ignore[method-assign]
        file.touch()
        work(config["job"], config["state"])

    launch(job, worker, lambda *_: None)
    return load_file(Path(job.folder) / WEIGHTS)


def steps_done(job: Job, rank: int = 0) -> list[list[dict[str, Any]]]:
    """What a rank has written down: a list for each start of the workers, a record for each step."""
    files = sorted((Path(job.folder) / "log").glob(f"*-{rank}.jsonl"))
    return [[json.loads(line) for line in file.read_text().splitlines()] for file in files]
