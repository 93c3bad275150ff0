"""Who works: actors and what they take, what the cluster may become, and how a stage survives."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from repair_ray.sections.base import Fraction, Labels, PositiveInt, Section

# Ray Data starts a further actor where those that are there have 1.75 times the blocks that they can work on.
MIN_TO_GROW = 2


class PoolConfig(Section):
    """Actors of one stage, and what each of them takes."""

    actors: PositiveInt = Field(1, description="how many; with max_actors, how many at least")
    max_actors: PositiveInt | None = Field(
        None, description="grow up to so many while blocks wait; unset: always `actors` of them, which is steadier"
    )
    num_cpus: float = Field(1.0, ge=0.0, description="logical CPUs of one actor")
    num_gpus: float = Field(0.0, ge=0.0, description="GPUs of one actor: a share of one, such as 0.25, or whole ones")
    memory_mb: PositiveInt | None = Field(None, description="memory that Ray sets aside for one actor; unset: none")
    accelerator_type: str | None = Field(
        None, min_length=1, description="only on nodes with this GPU, by Ray's name for it, such as L4 or H100"
    )
    python: str | None = Field(None, description="interpreter of the actors, where theirs is another environment")
    labels: Labels = Field(
        default_factory=dict, description="labels that a node must have for these actors, such as {pool: language}"
    )
    rows_per_block: PositiveInt = Field(256, description="rows of one task: the unit of streaming and of resuming")
    blocks_in_flight: PositiveInt | None = Field(
        None, description="blocks sent to one actor at a time; unset: 2, and 16 for a vLLM engine, which mixes them"
    )

    @model_validator(mode="after")
    def _possible(self) -> PoolConfig:
        if self.max_actors is not None and self.max_actors < self.actors:
            raise ValueError(f"max_actors={self.max_actors} is below actors={self.actors}")
        if self.num_gpus > 1 and not self.num_gpus.is_integer():
            raise ValueError(
                f"num_gpus={self.num_gpus:g}: Ray gives an actor a share of one GPU or whole ones; "
                f"set {int(self.num_gpus)} or {int(self.num_gpus) + 1}"
            )
        if self.accelerator_type is not None and not self.num_gpus:
            raise ValueError(f"accelerator_type={self.accelerator_type} needs num_gpus above 0")
        if self.grows and self.blocks_in_flight is not None and self.blocks_in_flight < MIN_TO_GROW:
            raise ValueError(
                f"blocks_in_flight={self.blocks_in_flight} keeps the actors from growing to "
                f"max_actors={self.max_actors}: set at least {MIN_TO_GROW}"
            )
        return self

    @property
    def grows(self) -> bool:
        """Whether there may be more actors than there are at the start."""
        return self.most > self.actors

    @property
    def most(self) -> int:
        """As many actors as there may be."""
        return self.max_actors or self.actors

    def on_cpu(self) -> PoolConfig:
        """The same pool for a stage without a model, which any node can take."""
        return self.model_copy(update={"num_gpus": 0.0, "accelerator_type": None, "labels": {}})


class NodeGroupConfig(Section):
    """Nodes of one kind, as an autoscaler may start them."""

    max_nodes: PositiveInt = Field(description="as many as there may be, those that are there counted in")
    cpus: float = Field(ge=0.0)
    gpus: int = Field(0, ge=0)
    memory_gb: float | None = Field(None, gt=0.0, description="that Ray gives to workers; unset: as much as it takes")
    accelerator_type: str | None = Field(None, description="Ray's name of the GPU")
    labels: Labels = Field(default_factory=dict, description="labels that these nodes have")


class ClusterConfig(Section):
    """What the cluster may become, and how much of it one graph fills."""

    node_groups: tuple[NodeGroupConfig, ...] = Field(
        (), description="what an autoscaler may start: it does not say so itself, and what is not there is refused"
    )
    object_store_mb: PositiveInt | None = Field(
        None, description="object store that the blocks of one graph may fill; unset: half of the cluster's"
    )


class FaultConfig(Section):
    """How a stage survives bad rows, and a cluster that has no room."""

    max_restarts: int = Field(8, ge=0, description="restarts of one actor before the stage stops")
    max_error_rate: Fraction = Field(0.5, description="a stage with more failing rows than this stops the run")
    stall_seconds: float = Field(120.0, gt=0.0, description="say what is missing when no row was finished for so long")
    stop_seconds: float | None = Field(
        None, gt=0.0, description="stop a stage that has finished no row for so long; unset: it waits, and says so"
    )
    poison: dict[str, Literal["raise", "kill"]] = Field(
        default_factory=dict, description="fault injection for tests: row id -> what its processing does"
    )
