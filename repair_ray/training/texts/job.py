"""One text-only training run as plain values, and where its products lie."""

from __future__ import annotations

from dataclasses import dataclass, replace

from repair_ray.config import TextConfig, TextObjectiveConfig, TextTrainingConfig
from repair_ray.engines.retriever import RetrieverSpec, named_spec
from repair_ray.run import Run, RunError
from repair_ray.training.job import WEIGHTS

# Not `config.json`, by which a run of pictures and captions is known.
TEXT_CONFIG = "text.json"
TEXTS = "data/texts"
TRAINING = "training"


@dataclass(frozen=True)
class TextJob:
    """What one text-only training run needs; plain values only, since it travels to the workers.

    `run` is the run directory, `texts` its product of texts, `validation` that of scored pairs (None: the last step
    wins), `folder` where the training leaves its files.
    """

    name: str
    run: str
    folder: str
    texts: str
    validation: str | None
    spec: RetrieverSpec
    training: TextTrainingConfig
    objective: TextObjectiveConfig
    seed: int


def start_spec(config: TextConfig) -> RetrieverSpec:
    """The retriever whose text tower is trained; without weights it starts from scratch."""
    retriever = config.retriever
    return named_spec(retriever.model, retriever.pretrained, retriever.precision)


def trained_spec(run: Run, config: TextConfig) -> RetrieverSpec:
    """The retriever with its trained text tower. Raises `RunError` when it is not trained yet."""
    if run.manifest(TRAINING) is None:
        raise RunError(f"{TRAINING} does not exist yet in {run.folder}: its text tower is not trained")
    return replace(start_spec(config), weights=str(run.path(TRAINING) / WEIGHTS))
