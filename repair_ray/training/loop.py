"""One training run on Ray Train: DDP workers, checkpoints by step, the best one by validation.

Everything is a function of the step number (which anchors, which learning rate), so that a run that was killed goes on
inside its epoch, also with another number of workers.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Protocol

import ray
import ray.train
import ray.train.torch
import torch
import torch.distributed as dist
from ray.train import Checkpoint
from ray.train.collective import broadcast_from_rank_zero
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from repair_ray.data.store import ImageStore
from repair_ray.engines.encoder import Preprocess, build_model, save_config, save_state
from repair_ray.observing.meter import Meter
from repair_ray.run import RunError, read_json, write_json
from repair_ray.training.batches import BatchPlan
from repair_ray.training.checkpoints import Checkpoints, seal
from repair_ray.training.gather import total, world_size
from repair_ray.training.items import read_items
from repair_ray.training.job import (
    POSITION,
    PROGRESS,
    STATE,
    WEIGHTS,
    WORKERS,
    AnyJob,
    Job,
    Progress,
    figures_of,
    read_progress,
)
from repair_ray.training.loader import BatchLoader
from repair_ray.training.pace import Pace
from repair_ray.training.parameters import merged_state
from repair_ray.training.trainer import StepReport, Trainer
from repair_ray.training.validation import Validator


def work(job: Job, state: Checkpoints) -> None:
    """Train as one worker of a Ray Train run, from its last checkpoint to the end."""
    context = ray.train.get_context()
    meter = Meter(figures_of(job.folder) / WORKERS)
    torch.set_num_threads(job.training.cpus_per_worker)
    device = "cuda" if job.training.use_gpu else "cpu"
    if job.training.use_gpu:
        # The workers of a node see all its GPUs: each takes its own for what is called "cuda" from here on.
        torch.cuda.set_device(ray.train.torch.get_device())
    items, pairs = read_items(job.items)
    # Weights stay fp32, whatever precision the retriever embeds with: training.precision is that of the forward pass.
    model = build_model(replace(job.spec, precision="fp32"), device, job.seed)
    preprocess = Preprocess(model, job.spec.model)
    store = ImageStore(**job.store)
    trainer = Trainer(
        model,
        pairs,
        job.training,
        job.objective,
        teacher=items.teacher,
        seed=job.seed,
        wrap=wrapper(context.get_world_size()),
        device=device,
    )
    fine = job.objective.fine_grained
    loader = BatchLoader(
        BatchPlan(pairs, job.training.batch_size, job.seed, job.training.grid_share, fine.negatives if fine else 0),
        items,
        store,
        preprocess,
        rank=context.get_world_rank(),
        world_size=context.get_world_size(),
        cache_bytes=job.training.image_cache_mb * 2**20,
        threads=job.training.decode_threads,
    )
    # Only the first worker validates; the others wait for its decision.
    first = context.get_world_rank() == 0
    if first:
        save_config(model, job.spec.model, Path(job.folder))
    validator = Validator(job.validation, store, preprocess, device) if job.validation and first else None
    with tempfile.TemporaryDirectory() as scratch:
        Loop(job, trainer, loader, validator, Path(scratch), state, meter).run()
    loader.close()
    meter.close()


def wrapper(world_size: int) -> Callable[[nn.Module], nn.Module]:
    """What puts the model behind DDP, where there are several workers."""
    return (lambda module: module) if world_size == 1 else DistributedDataParallel


class Steps(Protocol):
    """Takes one step at a time: a `Trainer`. `step` takes the step's number, then what its loader gives for it."""

    @property
    def model(self) -> nn.Module: ...

    @property
    def optimizer(self) -> torch.optim.Optimizer: ...

    @property
    def device(self) -> str: ...

    @property
    def step(self) -> Callable[..., StepReport]: ...


class Loads(Protocol):
    """Gives a step's number its batch, and the tensors of it: a `BatchLoader`."""

    @property
    def step(self) -> Callable[[int], tuple[Any, ...]]: ...


class Scores(Protocol):
    """Scores a model, higher for better: a `Validator`."""

    def score(self, model: nn.Module) -> float: ...


class Loop:
    """Steps, validations and checkpoints of one worker."""

    def __init__(
        self,
        job: AnyJob,
        trainer: Steps,
        loader: Loads,
        validator: Scores | None,
        scratch: Path,
        state: Checkpoints,
        meter: Meter,
    ) -> None:
        self.job, self.trainer, self.loader, self.validator, self.scratch = job, trainer, loader, validator, scratch
        self.state, self.meter = state, meter
        self.progress = Progress()
        self.pace = Pace()
        self.first = ray.train.get_context().get_world_rank() == 0
        self._images = self._texts = 0
        self._report: StepReport | None = None

    def run(self) -> None:
        self._restore()
        config = self.job.training
        self.meter.ready()
        while not self.progress.finished(config):
            step = self.progress.step
            report = self._step(step)
            self._images, self._texts = self._images + report.images, self._texts + report.texts
            self._report = report
            self.progress.step = step + 1
            if self.first and self.progress.step % 10 == 0:
                self._tell()
            last = self.progress.step == config.steps
            validate = last or self.progress.step % config.validate_every == 0
            if validate:
                self._validate()
            if validate or self.progress.step % config.checkpoint_every == 0:
                self._checkpoint()
        if self.first:
            self._tell()

    def _step(self, number: int) -> StepReport:
        """One step, measured. On a GPU a step ends before its kernels do, which the copies of the next one wait for:
        the mean over steps is right, a single one's seconds are not."""
        begun = time.monotonic()
        with self.meter.waiting():
            batch = self.loader.step(number)
        ready = time.monotonic()
        with self.meter.batch():
            report = self.trainer.step(number, *batch)
            self.meter.count(rows_in=report.images + report.texts, rows_out=report.images + report.texts)
        self.pace.add(number, ready - begun, time.monotonic() - ready)
        return report

    def _tell(self) -> None:
        write_json(Path(self.job.folder) / POSITION, {"step": self.progress.step, "pace": self.pace.kept()})

    @property
    def _losses(self) -> dict[str, float]:
        # Read as numbers only where they are needed: on a GPU each reading waits for the step to end.
        return self._report.losses if self._report else {}

    def _validate(self) -> None:
        score = self.validator.score(self.trainer.model) if self.validator else None
        record: dict[str, float] = {"step": self.progress.step, **{k: round(v, 5) for k, v in self._losses.items()}}
        if score is not None:
            record["validation"] = round(score, 3)
        better = score is None or score > self.progress.best
        if self.job.validation is not None:
            better = _agree(better, self.trainer.device)
        if better:
            self.progress.best = self.progress.best if score is None else score
            self.progress.best_step, self.progress.stale = self.progress.step, 0
            if self.first:
                save_state(merged_state(self.trainer.model), self.scratch / WEIGHTS)
        else:
            self.progress.stale += 1
        self.progress.history.append(record)

    def _checkpoint(self) -> None:
        # On the trainer's device: NCCL, the backend on GPUs, knows no CPU tensors.
        self.progress.images += int(total(torch.tensor(self._images, device=self.trainer.device)))
        self.progress.texts += int(total(torch.tensor(self._texts, device=self.trainer.device)))
        self._images = self._texts = 0
        metrics = {"step": self.progress.step, **self._losses}
        if not self.first:
            ray.train.report(metrics)
            return
        with tempfile.TemporaryDirectory() as folder:
            state = {"model": self.trainer.model.state_dict(), "optimizer": self.trainer.optimizer.state_dict()}
            torch.save(state, Path(folder) / STATE)
            write_json(Path(folder) / PROGRESS, asdict(self.progress))
            if (self.scratch / WEIGHTS).exists():
                shutil.copy(self.scratch / WEIGHTS, folder)
            seal(Path(folder), self.progress.step)
            ray.train.report(metrics, checkpoint=Checkpoint.from_directory(folder))

    def _restore(self) -> None:
        """Go on from the newest checkpoint that the first worker finds whole; the others take the same one."""
        if self.first:
            self.pace = Pace((read_json(Path(self.job.folder) / POSITION) or {}).get("pace"))
        with contextlib.ExitStack() as stack:
            found = stack.enter_context(self.state.newest()) if self.first else None
            chosen = broadcast_from_rank_zero(found[0] if found else None)
            if chosen is None:
                return
            folder = found[1] if found else stack.enter_context(self.state.opened(chosen))
            if folder is None:
                raise RunError(f"the checkpoint {chosen.folder} in {self.state.root} is whole for one worker only")
            state = torch.load(folder / STATE, map_location="cpu", weights_only=True)
            self.trainer.model.load_state_dict(state["model"])
            self.trainer.optimizer.load_state_dict(state["optimizer"])
            self.progress = read_progress(folder)
            if (folder / WEIGHTS).exists():
                shutil.copy(folder / WEIGHTS, self.scratch / WEIGHTS)


def _agree(decision: bool, device: str) -> bool:
    """The first worker's decision, on every worker."""
    if world_size() == 1:
        return decision
    flag = torch.tensor([int(decision)], device=device)
    dist.broadcast(flag, src=0)
    return bool(flag.item())
