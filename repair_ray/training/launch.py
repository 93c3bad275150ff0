"""Training as the driver sees it: a Ray Train run that is started, watched, retried, and leaves its best weights."""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pyarrow.fs import LocalFileSystem
from ray.train import CheckpointConfig, FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer

from repair_ray.config import ClusterConfig, FaultConfig, OptimisationConfig
from repair_ray.observing.figures import FIGURES, Watched, named, stage_facts
from repair_ray.observing.published import FIGURES_SECONDS, LOOK_SECONDS, Publisher
from repair_ray.observing.rate import Rate
from repair_ray.run import RunError, read_json, write_json
from repair_ray.scheduling.asks import of_training
from repair_ray.scheduling.cluster import nodes_of, require
from repair_ray.scheduling.fit import Ask
from repair_ray.scheduling.stall import Stall, workers_waiting
from repair_ray.training.checkpoints import KEPT
from repair_ray.training.job import (
    HISTORY,
    POSITION,
    WEIGHTS,
    WORKERS,
    AnyJob,
    Job,
    figures_of,
    read_progress,
    state_of,
)
from repair_ray.training.pace import pace_facts

# After so long without room for all workers, Ray Train counts a failure of its controller, and tries again.
ROOM_SECONDS = 60.0
FAULTS, CLUSTER = FaultConfig(), ClusterConfig()


def train(
    job: Job,
    progress: Callable[[str, int, int], None],
    *,
    faults: FaultConfig = FAULTS,
    cluster: ClusterConfig = CLUSTER,
    key: str = "training",
) -> dict[str, Any]:
    """Train on pictures and captions; see `launch`."""
    return launch(job, _worker, progress, faults=faults, cluster=cluster, key=key)


def launch(
    job: AnyJob,
    worker: Callable[[dict[str, Any]], None],
    progress: Callable[[str, int, int], None],
    *,
    faults: FaultConfig = FAULTS,
    cluster: ClusterConfig = CLUSTER,
    key: str = "training",
) -> dict[str, Any]:
    """Train to the end, resuming what lies under the job's name; returns steps, items encoded and the history.

    Beside them `figures` of its workers, and their `pace`: seconds that steps wait for data and compute.

    `key` is the section that its workers are set in. `worker` is what each Ray Train worker runs, on `{"job": job,
    "state": the run's Checkpoints}`. Writes `model.safetensors` (the best weights by validation) and `history.json`
    into `job.folder`.

    Raises:
        RunError: workers that the cluster cannot hold, no room for them within `faults.stop_seconds`, a worker that
            failed more often than Ray Train retries, or checkpoints that cannot be kept where they should.
    """
    asked = of_training(job.training, nodes_of(cluster), key)
    require(job.name, [asked], cluster)
    # Ray Train would wait for room for ever.
    rounds = -1 if faults.stop_seconds is None else int(faults.stop_seconds // ROOM_SECONDS)
    folder, state = Path(job.folder), state_of(job)
    start = state.begin()
    system, place = state.where
    trainer = TorchTrainer(
        worker,
        train_loop_config={"job": job, "state": state},
        scaling_config=_scaling(job.training, asked),
        # A name of its own for each start: what earlier ones left, workers find in `state`, not in Ray Train's index.
        run_config=RunConfig(
            name=start,
            storage_path=place,
            storage_filesystem=None if isinstance(system, LocalFileSystem) else system,
            checkpoint_config=CheckpointConfig(num_to_keep=KEPT),
            # mypy sees the arguments of Ray Train's first version.
            failure_config=FailureConfig(max_failures=3, controller_failure_limit=rounds),  # type: ignore[call-arg]
        ),
    )
    figures = figures_of(job.folder)
    workers = job.training.workers
    watched = Watched.read(figures, named([(WORKERS, key, workers, asked.gpus)]))
    stall = Stall(job.name, [asked], faults, unit="step", look=workers_waiting(asked.count))
    try:
        with _watch(job, progress, stall, figures, watched):
            trainer.fit()
    except Exception as error:
        if stall.given_up is not None:
            raise RunError(stall.given_up) from error
        raise RunError(
            f"training {job.name} stopped; start again to go on from its last checkpoint. {_tail(error)}"
        ) from error
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
    pace = pace_facts((read_json(folder / POSITION) or {}).get("pace"))
    return {**record, FIGURES: stage_facts(figures, watched), "pace": pace}


@contextlib.contextmanager
def _watch(
    job: AnyJob, progress: Callable[[str, int, int], None], stall: Stall, figures: Path, watched: Watched
) -> Iterator[None]:
    """Tells the step that the first worker has reached, from the file that it keeps, and the workers' figures."""
    done = threading.Event()
    publisher = Publisher(job.name, figures, watched)
    begun, before = time.monotonic(), watched.seconds

    def step() -> int:
        return int((read_json(Path(job.folder) / POSITION) or {}).get("step", 0))

    def tell(reached: int, rate: float | None) -> None:
        watched.seconds = before + time.monotonic() - begun
        with contextlib.suppress(OSError):  # a full disk stops the training itself, which says so
            watched.keep(figures)
        publisher.tell(reached, job.training.steps, rate)

    def look() -> None:
        rate, told = Rate(step()), begun
        while not done.wait(LOOK_SECONDS):
            reached = step()
            progress(job.name, reached, job.training.steps)
            stall.tell(reached)
            now = rate.tell(reached)
            if time.monotonic() - told >= FIGURES_SECONDS:
                told = time.monotonic()
                tell(reached, now)

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        tell(step(), None)
        publisher.end()
    # Also where training stopped early: its steps are done.
    progress(job.name, job.training.steps, job.training.steps)


def _scaling(config: OptimisationConfig, asked: Ask) -> ScalingConfig:
    resources = {"CPU": asked.cpus, "GPU": asked.gpus}
    # Ray's own hint leaves out the pair, and knows no labels.
    workers: Any = config.workers if config.min_workers is None else (config.min_workers, config.workers)
    return ScalingConfig(  # type: ignore[call-arg]
        num_workers=workers,
        use_gpu=config.use_gpu,
        resources_per_worker={name: amount for name, amount in resources.items() if amount},
        accelerator_type=config.accelerator_type,
        label_selector=config.labels or None,
    )


def _tail(error: Exception) -> str:
    text = str(error)
    if "No space left on device" in text:
        return "The disk is full."
    return text[-800:]


def _worker(config: dict[str, Any]) -> None:
    # Imported where it runs: Ray Train's controller unpickles this function too, and needs no model library.
    from repair_ray.training.loop import work

    work(config["job"], config["state"])
