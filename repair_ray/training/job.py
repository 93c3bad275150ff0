"""One training run as plain values: what it needs, where it stands, the files that it keeps."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from repair_ray.config import ObjectiveConfig, OptimisationConfig, TrainingConfig
from repair_ray.engines.retriever import RetrieverSpec
from repair_ray.observing.figures import FIGURES
from repair_ray.run import RunError, read_json, write_json
from repair_ray.training.checkpoints import Checkpoints

WEIGHTS = "model.safetensors"
HISTORY = "history.json"
STATE_FOLDER = "state"
STATE_PLACE = "state.json"
STATE = "state.pt"
PROGRESS = "progress.json"
POSITION = "position.json"
# The name of a training's workers among the pools that are measured.
WORKERS = "workers"


class AnyJob(Protocol):
    """What launching and looping need of a training run, whatever it trains on."""

    @property
    def name(self) -> str: ...

    @property
    def folder(self) -> str: ...

    @property
    def validation(self) -> str | None: ...

    @property
    def training(self) -> OptimisationConfig: ...


@dataclass(frozen=True)
class Job:
    """What one training run needs; plain values only, since it travels to the workers.

    `items` is the folder of the training set, `validation` that of the validation set (None: the last step wins).
    """

    name: str
    folder: str
    items: str
    validation: str | None
    spec: RetrieverSpec
    training: TrainingConfig
    objective: ObjectiveConfig
    store: dict[str, Any]
    seed: int


@dataclass
class Progress:
    """Where a run stands; saved with each checkpoint."""

    step: int = 0
    images: int = 0
    texts: int = 0
    best: float = -101.0  # below R@1, and below a correlation x 100
    best_step: int = 0
    stale: int = 0
    history: list[dict[str, float]] = field(default_factory=list)

    def finished(self, config: OptimisationConfig) -> bool:
        """Whether there is no step left, all done or stopped early."""
        return self.step >= config.steps or (config.patience is not None and self.stale >= config.patience)


def figures_of(folder: str) -> Path:
    """Where the workers of a training measure themselves; it stays with the finished product."""
    return Path(folder) / FIGURES


def read_progress(folder: Path) -> Progress:
    """Raises RunError for a checkpoint without it."""
    record = read_json(folder / PROGRESS)
    if record is None:
        raise RunError(f"checkpoint {folder} has no {PROGRESS}")
    return Progress(**record)


def state_of(job: AnyJob) -> Checkpoints:
    """Where the checkpoints of a run lie while it goes on; the same place at each start of the run.

    In `training.storage` it is a folder of that run, its product and its first start alone, so that no two ever mix.

    Raises:
        RunError: `training.storage` is another one than when the run began.
    """
    folder, storage = Path(job.folder), job.training.storage
    record = read_json(folder / STATE_PLACE)
    if record is None:
        record = {"storage": storage, "inside": ""}
        if storage is not None:
            run = Path(job.folder.removesuffix(job.name)).name
            record["inside"] = f"{run}/{job.name}/{uuid.uuid4().hex[:12]}"
        write_json(folder / STATE_PLACE, record)
    if record["storage"] != storage:
        raise RunError(
            f"{job.name} began with training.storage={record['storage']}, where its checkpoints are, and it is now "
            f"{storage}: set it back, or start {job.name} anew with --redo {job.name}"
        )
    return _place(folder, record)


def discard_state(folder: Path) -> None:
    """Delete the checkpoints of a finished product, wherever they are; does nothing where there are none."""
    record = read_json(folder / STATE_PLACE)
    if record is not None:
        _place(folder, record).discard()
        (folder / STATE_PLACE).unlink()


def _place(folder: Path, record: dict[str, Any]) -> Checkpoints:
    storage = record["storage"]
    return Checkpoints(str(folder / STATE_FOLDER)) if storage is None else Checkpoints(storage, record["inside"])
