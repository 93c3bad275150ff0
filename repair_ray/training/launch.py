"""Training as the driver sees it: a Ray Train run that is started, watched, retried, and leaves its best weights."""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ray
from pyarrow.fs import LocalFileSystem
from ray.train import CheckpointConfig, FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer

from repair_ray.config import OptimisationConfig
from repair_ray.run import RunError, read_json, write_json
from repair_ray.training.checkpoints import KEPT
from repair_ray.training.job import HISTORY, POSITION, WEIGHTS, AnyJob, Job, read_progress, state_of

# What a worker without a GPU reserves on a machine that is too small for more.
MIN_CPUS = 0.5


def train(job: Job, progress: Callable[[str, int, int], None]) -> dict[str, Any]:
    """Train on pictures and captions; see `launch`."""
    return launch(job, _worker, progress)


def launch(
    job: AnyJob, worker: Callable[[dict[str, Any]], None], progress: Callable[[str, int, int], None]
) -> dict[str, Any]:
    """Train to the end, resuming what lies under the job's name; returns steps, items encoded and the history.

    `worker` is what each Ray Train worker runs, on `{"job": job, "state": the run's Checkpoints}`. Writes
    `model.safetensors` (the best weights by validation) and `history.json` into `job.folder`.

    Raises:
        RunError: a worker failed more often than Ray Train retries, or checkpoints cannot be kept where they should.
    """
    state = state_of(job)
    start = state.begin()
    system, place = state.where
    trainer = TorchTrainer(
        worker,
        train_loop_config={"job": job, "state": state},
        scaling_config=_scaling(job.training),
        # A name of its own for each start: what earlier ones left, workers find in `state`, not in Ray Train's index.
        run_config=RunConfig(
            name=start,
            storage_path=place,
            storage_filesystem=None if isinstance(system, LocalFileSystem) else system,
            checkpoint_config=CheckpointConfig(num_to_keep=KEPT),
            failure_config=FailureConfig(max_failures=3),
        ),
    )
    try:
        with _watch(job, progress):
            trainer.fit()
    except Exception as error:
        raise RunError(
            f"training {job.name} stopped; start again to go on from its last checkpoint. {_tail(error)}"
        ) from error
    folder = Path(job.folder)
    with state.newest() as found:
        final = read_progress(found[1]) if found else None
        if found is None or final is None or not final.finished(job.training):
            raise RunError(
                f"training {job.name} ended, but its last checkpoint is damaged; start again to go on from the one "
                "before"
            )
        temporary = folder / f".{WEIGHTS}.tmp"
        shutil.copyfile(found[1] / WEIGHTS, temporary)
    os.replace(temporary, folder / WEIGHTS)
    record = {
        "steps": final.step,
        "best_step": final.best_step,
        "items_encoded": final.images + final.texts,
        "images_encoded": final.images,
        "texts_encoded": final.texts,
        "history": final.history,
    }
    write_json(folder / HISTORY, record)
    return record


@contextlib.contextmanager
def _watch(job: AnyJob, progress: Callable[[str, int, int], None]) -> Iterator[None]:
    """Tells the step that the first worker has reached, from the file that it keeps."""
    done = threading.Event()

    def look() -> None:
        while not done.wait(0.5):
            record = read_json(Path(job.folder) / POSITION) or {"step": 0}
            progress(job.name, record["step"], job.training.steps)

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
    # Also where training stopped early: its steps are done.
    progress(job.name, job.training.steps, job.training.steps)


def _scaling(config: OptimisationConfig) -> ScalingConfig:
    resources = {"CPU": _cpus(config)}
    if config.use_gpu:
        resources["GPU"] = 1.0
    # Ray's own hint leaves out the pair.
    workers: Any = config.workers if config.min_workers is None else (config.min_workers, config.workers)
    return ScalingConfig(
        num_workers=workers,
        use_gpu=config.use_gpu,
        resources_per_worker=resources,
        accelerator_type=config.accelerator_type,
    )


def _cpus(config: OptimisationConfig) -> float:
    # Logical CPUs: threads are set by cpus_per_worker, the reservation only has to fit the machine.
    have = ray.cluster_resources().get("CPU", 1.0)
    return max(MIN_CPUS, min(float(config.cpus_per_worker), (have - 1) / config.workers))


def _tail(error: Exception) -> str:
    text = str(error)
    if "No space left on device" in text:
        return "The disk is full."
    return text[-800:]


def _worker(config: dict[str, Any]) -> None:
    # Imported where it runs: Ray Train's controller unpickles this function too, and needs no model library.
    from repair_ray.training.loop import work

    work(config["job"], config["state"])
