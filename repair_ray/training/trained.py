"""The retrievers of a run: the one that a round starts from, and the one that it has trained."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from repair_ray.config import Config
from repair_ray.engines.retriever import RetrieverSpec, named_spec
from repair_ray.run import Run, RunError
from repair_ray.training.job import WEIGHTS

TrainedName = Literal["base", "repaired"]


def spec_of(run: Run, config: Config, which: TrainedName, place: str) -> RetrieverSpec:
    """The retriever before (`base`) or after (`repaired`) the round `place`, its weights where the run lies now.

    Raises:
        RunError: it is not trained yet.
    """
    retriever = config.retriever
    spec = named_spec(retriever.model, retriever.pretrained, retriever.precision)
    if which == "base" and config.base is None:
        return spec
    product = "base/training" if which == "base" else f"{place}/training"
    if run.manifest(product) is None:
        raise RunError(f"{product} does not exist yet in {run.folder}: its retriever is not trained")
    return replace(spec, weights=str(run.path(product) / WEIGHTS))
