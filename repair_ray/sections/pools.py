"""Who works: actors, and how a stage survives bad rows."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from repair_ray.sections.base import Fraction, Labels, PositiveInt, Section


class PoolConfig(Section):
    """Actors of one stage, and what each of them takes."""

    actors: PositiveInt = 1
    num_cpus: float = Field(1.0, ge=0.0)
    num_gpus: float = Field(0.0, ge=0.0)
    python: str | None = Field(None, description="interpreter of the actors, where theirs is another environment")
    labels: Labels = Field(
        default_factory=dict, description="labels that a node must have for these actors, such as {pool: language}"
    )
    rows_per_block: PositiveInt = Field(256, description="rows of one task: the unit of streaming and of resuming")

    def on_cpu(self) -> PoolConfig:
        """The same pool for a stage without a model, which any node can take."""
        return self.model_copy(update={"num_gpus": 0.0, "labels": {}})


class FaultConfig(Section):
    """How a stage survives bad rows."""

    max_restarts: int = Field(8, ge=0, description="restarts of one actor before the stage stops")
    max_error_rate: Fraction = Field(0.5, description="a stage with more failing rows than this stops the run")
    nodes_wait_s: float = Field(
        0.0, ge=0.0, description="an autoscaling cluster: how long a stage waits for the nodes that it needs"
    )
    poison: dict[str, Literal["raise", "kill"]] = Field(
        default_factory=dict, description="fault injection for tests: row id -> what its processing does"
    )
