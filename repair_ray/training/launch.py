"""Training as the driver sees it: a Ray Train run that is started, watched, retried, and leaves its best weights."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ray
from ray.train import CheckpointConfig, FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer

from repair_ray.config import OptimisationConfig, PoolConfig
from repair_ray.run import RunError, read_json, write_json
from repair_ray.training.job import HISTORY, POSITION, STATE_FOLDER, WEIGHTS, AnyJob, Job, read_progress

# What a worker without a GPU reserves on a machine that is too small for more.
MIN_CPUS = 0.5


def train(job: Job, progress: Callable[[str, int, int], None]) -> dict[str, Any]:
    """Train on pictures and captions; see `launch`."""
    return launch(job, _worker, progress)


def launch(
    job: AnyJob, worker: Callable[[dict[str, Any]], None], progress: Callable[[str, int, int], None]
) -> dict[str, Any]:
    """Train to the end, resuming what lies under the job's name; returns steps, items encoded and the history.

    `worker` is what each Ray Train worker runs, on `{"job": job}`. Writes `model.safetensors` (the best weights by
    validation) and `history.json` into `job.folder`.

    Raises:
        RunError: a worker failed more often than Ray Train retries.
    """
    folder = Path(job.folder)
    trainer = TorchTrainer(
        worker,
        train_loop_config={"job": job},
        # The types of ray.train are those of its first version, which knows no labels.
        scaling_config=ScalingConfig(  # type: ignore[call-arg]
            num_workers=job.training.workers,
            use_gpu=job.training.use_gpu,
            label_selector=job.training.labels or None,
            resources_per_worker=None if job.training.use_gpu else {"CPU": _cpus(job.training)},
        ),
        run_config=RunConfig(
            name=STATE_FOLDER,
            storage_path=str(folder),
            checkpoint_config=CheckpointConfig(num_to_keep=2),
            failure_config=FailureConfig(max_failures=3),
        ),
    )
    try:
        with _watch(job, progress):
            result = trainer.fit()
    except Exception as error:
        raise RunError(
            f"training {job.name} stopped; start again to go on from its last checkpoint. {_tail(error)}"
        ) from error
    if result.checkpoint is None:
        raise RunError(f"training {job.name} ended without a checkpoint in {folder}")
    with result.checkpoint.as_directory() as saved:
        final = read_progress(Path(saved))
        best = (Path(saved) / WEIGHTS).read_bytes()
    temporary = folder / f".{WEIGHTS}.tmp"
    temporary.write_bytes(best)
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


def workers(config: OptimisationConfig) -> tuple[PoolConfig]:
    """The least that the workers of a training take, as a pool of actors."""
    share = {"num_gpus": 1.0, "num_cpus": 0.0} if config.use_gpu else {"num_cpus": MIN_CPUS}
    return (PoolConfig(actors=config.workers, labels=config.labels, **share),)


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

    work(config["job"])
