"""One worker of a text-only training run on Ray Train."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import ray.train
import ray.train.torch
import torch

from repair_ray.engines.encoder import Preprocess, build_model, save_config
from repair_ray.observing.meter import Meter
from repair_ray.run import Run
from repair_ray.training.checkpoints import Checkpoints
from repair_ray.training.job import WORKERS, figures_of
from repair_ray.training.loop import Loop, wrapper
from repair_ray.training.texts.batches import TextLoader, TextPlan, text_set, usable
from repair_ray.training.texts.job import TextJob
from repair_ray.training.texts.trainer import TextTrainer
from repair_ray.training.texts.validation import StsValidator


def work(job: TextJob, state: Checkpoints) -> None:
    """Train as one worker of a Ray Train run, from its last checkpoint to the end."""
    context = ray.train.get_context()
    meter = Meter(figures_of(job.folder) / WORKERS)
    rank, size = context.get_world_rank(), context.get_world_size()
    torch.set_num_threads(job.training.cpus_per_worker)
    device = "cuda" if job.training.use_gpu else "cpu"
    if job.training.use_gpu:
        torch.cuda.set_device(ray.train.torch.get_device())
    texts = text_set(Run(job.run).read(job.texts))
    # Weights stay fp32, whatever precision the retriever embeds with: training.precision is that of the forward pass.
    model = build_model(replace(job.spec, precision="fp32"), device, job.seed)
    preprocess = Preprocess(model, job.spec.model)
    trainer = TextTrainer(model, texts, job.training, job.objective, job.seed, wrap=wrapper(size), device=device)
    plan = TextPlan(len(texts.texts), job.training.batch_size, job.seed)
    # Only the first worker validates; the others wait for its decision.
    validator = None
    if rank == 0:
        save_config(model, job.spec.model, Path(job.folder))
        validator = _validator(job, preprocess, device)
    with tempfile.TemporaryDirectory() as scratch:
        loader = TextLoader(plan, texts.texts, preprocess, rank, size)
        Loop(job, trainer, loader, validator, Path(scratch), state, meter).run()
    meter.close()


def _validator(job: TextJob, preprocess: Preprocess, device: str) -> StsValidator | None:
    if job.validation is None:
        return None
    pairs = usable(Run(job.run).read(job.validation))
    first, second = (pairs[side].to_pylist() for side in ("first", "second"))
    return StsValidator(first, second, pairs["score"].to_numpy(), preprocess, device)
