"""Training a text tower on sentences alone (`repair-ray text run`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import Field, model_validator

from repair_ray.sections.base import PositiveInt, Section, Seed
from repair_ray.sections.data import DataConfig
from repair_ray.sections.objective import HardNegativeMixingConfig, PositiveMixingConfig, switched
from repair_ray.sections.pools import ClusterConfig
from repair_ray.sections.training import OptimisationConfig, RetrieverConfig, check_workers


class TextsConfig(Section):
    """The sentences to train on: of files, or the captions of a data set's train split."""

    path: str | None = Field(None, description="file, folder or glob: a sentence a line, CSV, TSV, JSON lines, Parquet")
    column: str | None = Field(None, description="the texts' column; unset: one called text, sentence or caption")
    data: DataConfig | None = Field(None, description="in place of path: a data section, whose captions are taken")
    limit: PositiveInt | None = Field(None, description="read at most this many texts")

    @model_validator(mode="after")
    def _one_source(self) -> TextsConfig:
        if (self.path is None) == (self.data is None):
            raise ValueError("texts: set either texts.path or texts.data")
        if self.data is not None and self.data.world is not None:
            raise ValueError("texts.data.world: name files, as texts.path or in texts.data; the world draws pictures")
        if self.data is not None and self.column is not None:
            raise ValueError("texts.column is of texts.path; for texts.data set texts.data.caption_column")
        return self


class StsConfig(Section):
    """Pairs of sentences with people's scores. A path alone stands for a section with that path."""

    path: str
    columns: tuple[str, str, str] | None = Field(None, description="of the score and of both sentences, where named")


class TextTrainingConfig(OptimisationConfig):
    """As `training` of a run, in sentences."""

    steps: PositiveInt = 1000
    batch_size: PositiveInt = Field(64, description="sentences a step, over all workers")
    lr: float = Field(3e-5, gt=0.0)


class TextObjectiveConfig(Section):
    """SimCSE's loss, plus the terms that are set. A term that takes its place: `simcse_weight: 0`."""

    temperature: float = Field(0.05, gt=0.0)
    dropout: float = Field(
        0.1, gt=0.0, lt=1.0, description="what makes two passes differ; a Hugging Face tower keeps its own"
    )
    simcse_weight: float = Field(1.0, ge=0.0)
    positive_mixing: PositiveMixingConfig | None = None
    hard_negative_mixing: HardNegativeMixingConfig | None = None

    @model_validator(mode="before")
    @classmethod
    def _switches(cls, tree: Any) -> Any:
        """`positive_mixing: true` for a term with its defaults, `false` for none."""
        return switched(tree, ("positive_mixing", "hard_negative_mixing"))

    @model_validator(mode="after")
    def _something(self) -> TextObjectiveConfig:
        terms = (self.positive_mixing, self.hard_negative_mixing)
        if not self.simcse_weight and not any(term.weight for term in terms if term is not None):
            raise ValueError("objective: every weight is 0, so that there is nothing to minimise")
        return self


class TextConfig(Section):
    """A text-only run: SimCSE, with positive mixing, hard-negative mixing, both or none (methods, section 4)."""

    name: str = Field("text", pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")
    output: str = Field("runs", description="folder that holds run directories")
    seed: Seed = 0
    texts: TextsConfig
    retriever: RetrieverConfig = Field(
        RetrieverConfig(), description="whose text tower is trained; without retriever.pretrained from scratch"
    )
    training: TextTrainingConfig = TextTrainingConfig()
    objective: TextObjectiveConfig = TextObjectiveConfig()
    validation: StsConfig | None = Field(None, description="the checkpoint that ranks these best wins; unset: the last")
    test: StsConfig | None = Field(None, description="measured once, at the end")
    bootstrap: PositiveInt = Field(1000, description="resamples of an interval")
    cluster: ClusterConfig = ClusterConfig()

    @model_validator(mode="before")
    @classmethod
    def _paths(cls, tree: Any) -> Any:
        """`validation: sts-dev.csv` for a section with that path."""
        if not isinstance(tree, dict):
            return tree
        short = ("validation", "test", "texts")
        return {k: {"path": value} if k in short and isinstance(value, str) else value for k, value in tree.items()}

    @model_validator(mode="after")
    def _consistent(self) -> TextConfig:
        training, mixing = self.training, self.objective.hard_negative_mixing
        check_workers(training, "training")
        if mixing is not None and mixing.k >= training.batch_size:
            raise ValueError(
                f"objective.hard_negative_mixing.k={mixing.k} is not below training.batch_size={training.batch_size}: "
                "a query's negatives are the other sentences of its batch; lower k, or raise batch_size"
            )
        return self

    @property
    def run_dir(self) -> Path:
        return Path(self.output) / self.name
