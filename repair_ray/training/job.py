"""One training run as plain values: what it needs, where it stands, the files that it keeps."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from repair_ray.config import ObjectiveConfig, OptimisationConfig, TrainingConfig
from repair_ray.engines.retriever import RetrieverSpec
from repair_ray.run import RunError, read_json

WEIGHTS = "model.safetensors"
HISTORY = "history.json"
STATE_FOLDER = "state"
STATE = "state.pt"
PROGRESS = "progress.json"
POSITION = "position.json"


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


def read_progress(folder: Path) -> Progress:
    """Raises RunError for a checkpoint without it."""
    record = read_json(folder / PROGRESS)
    if record is None:
        raise RunError(f"checkpoint {folder} has no {PROGRESS}")
    return Progress(**record)
