"""The retriever, its training, its teacher, and what is measured."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from repair_ray.sections.base import Fraction, Labels, PositiveInt, Section
from repair_ray.sections.pools import PoolConfig


class RetrieverConfig(Section):
    """The retriever under repair: any open_clip model."""

    model: str = Field("ViT-B-32", description="open_clip model name, or path of a model-config JSON")
    pretrained: str | None = Field(None, description="open_clip pretrained tag, or path of a checkpoint file")
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    batch_size: PositiveInt = Field(128, description="items a forward pass, when embedding")


class LoraConfig(Section):
    """Low-rank adaptation of the towers' linear layers (`pip install repair-ray[lora]`)."""

    rank: PositiveInt = 8
    alpha: float = Field(16.0, gt=0.0)
    dropout: float = Field(0.0, ge=0.0, lt=1.0)


class TeacherConfig(Section):
    """A frozen teacher; its features are computed once, and read from their table in training."""

    retriever: RetrieverConfig | None = Field(
        None, description="an open_clip model; its name may be sentence-transformers:NAME, which sees texts only"
    )
    features: str | None = Field(
        None, description="Parquet of precomputed features: vector, and item_id, name (pictures) or text (captions)"
    )
    pool: PoolConfig | None = Field(None, description="actors that embed with teacher.retriever; unset: as `pool`")

    @model_validator(mode="after")
    def _one(self) -> TeacherConfig:
        if (self.retriever is None) == (self.features is None):
            raise ValueError("teacher: set either teacher.retriever or teacher.features")
        return self


class OptimisationConfig(Section):
    """How weights are optimised, on how many workers, and when they are validated and kept."""

    steps: PositiveInt = 400
    batch_size: PositiveInt = Field(128, description="anchors a step, over all workers")
    lr: float = Field(5e-4, gt=0.0)
    weight_decay: float = Field(0.1, ge=0.0)
    warmup: Fraction = Field(0.1, description="share of the steps")
    betas: tuple[float, float] = (0.9, 0.98)
    grad_clip: float | None = 1.0
    layer_decay: float | None = Field(None, gt=0.0, le=1.0, description="a layer's rate is this times the next one's")
    precision: Literal["fp32", "bf16"] = "fp32"
    workers: PositiveInt = 1
    cpus_per_worker: PositiveInt = 2
    use_gpu: bool = False
    accelerator_type: str | None = Field(
        None, min_length=1, description="workers only on nodes with this GPU, by Ray's name for it, such as H100"
    )
    labels: Labels = Field(
        default_factory=dict, description="labels that a node must have for a worker, such as {pool: training}"
    )
    validate_every: PositiveInt = Field(100, description="steps between validations; the best checkpoint wins")
    checkpoint_every: PositiveInt = Field(50, description="steps between checkpoints")
    patience: PositiveInt | None = Field(None, description="validations without a gain before stopping early")


class TrainingConfig(OptimisationConfig):
    """One training run; the same code trains a base from scratch and fine-tunes it."""

    grid_share: Fraction = Field(
        1.0, description="share of a batch's anchors that bring their grid, where they have one"
    )
    freeze: tuple[Literal["image", "text"], ...] = Field((), description="towers that stay as they are")
    lora: LoraConfig | None = Field(
        None, description="train low-rank changes of the weights, and merge them at the end"
    )
    image_cache_mb: PositiveInt = 512
    decode_threads: PositiveInt = 2


class EvaluationConfig(Section):
    """What is measured. On `validation`, for tuning, the figures flatter: the best checkpoint is picked there."""

    split: Literal["validation", "test"] = "test"
    bootstrap: PositiveInt = 1000
