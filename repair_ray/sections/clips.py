"""Settings of `repair-ray san`: SAN on precomputed clip features."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, ValidationError, model_validator

from repair_ray.sections.base import Fraction, PositiveInt, Section, Seed, Split
from repair_ray.sections.synthesis import NegativesConfig


class ClipWorldConfig(Section):
    """The made world of signed weather reports: how many clips a split holds."""

    language: Literal["de", "en"] = "de"
    train: PositiveInt = 600
    validation: PositiveInt = 100
    test: PositiveInt = 300
    seed: Seed = 0


class ClipDataConfig(Section):
    """Where clip features and captions come from."""

    path: str | None = Field(
        None, description="Parquet of clip_id, features (and split, caption), or a folder of safetensors"
    )
    captions: str | None = Field(None, description="CSV, JSON lines or Parquet of clip_id, caption and split")
    world: ClipWorldConfig | None = Field(None, description="make the signed weather reports instead of reading files")

    @model_validator(mode="after")
    def _one_source(self) -> ClipDataConfig:
        if (self.path is None) == (self.world is None):
            raise ValueError("set either data.path or data.world")
        return self


class TowerConfig(Section):
    """The retriever on clip features."""

    embed: PositiveInt = Field(128, description="width of the joint space; an open_clip text tower brings its own")
    layers: int = Field(0, ge=0, le=1, description="transformer layers over the frames, before they are pooled")
    heads: PositiveInt = 4
    text: str = Field("words", description="words: a mean of learned word vectors; or an open_clip model's text tower")
    pretrained: str | None = Field(None, description="of an open_clip model: tag, or path of a checkpoint file")

    @model_validator(mode="after")
    def _fits(self) -> TowerConfig:
        if self.text == "words" and self.pretrained is not None:
            raise ValueError("tower.pretrained is of an open_clip model; tower.text=words has no weights to load")
        if self.layers and self.embed % self.heads:
            raise ValueError(f"tower.heads={self.heads} does not divide tower.embed={self.embed}")
        return self


class ClipTrainingConfig(Section):
    """One training run on clips, in one process."""

    steps: PositiveInt = 400
    batch_size: PositiveInt = 128
    lr: float = Field(1e-3, gt=0.0)
    weight_decay: float = Field(0.01, ge=0.0)
    warmup: Fraction = Field(0.1, description="share of the steps")
    validate_every: PositiveInt = Field(100, description="steps between validations; the best weights win")
    use_gpu: bool = False


class ClipFineGrainedConfig(Section):
    """SAN's fine-grained term."""

    weight: float = Field(1.0, ge=0.0)
    negatives: PositiveInt = Field(4, description="negative captions drawn for a clip in a step")


class ClipStressConfig(Section):
    """The oracle of the stress test, which should know nothing of the retriever."""

    confusable: str | None = Field(None, description="CSV or Parquet of pairs (word, other) that look alike")
    features: str | None = Field(None, description="other features of the same clips: an oracle is trained on them")
    negatives: PositiveInt = Field(4, description="substitutions of a caption")

    @model_validator(mode="after")
    def _one(self) -> ClipStressConfig:
        if self.confusable is not None and self.features is not None:
            raise ValueError("set either stress.confusable or stress.features")
        return self


class ClipsConfig(Section):
    """A run of SAN on clip features: a base, its negatives, training with them, and controls beside it.

    `controls` maps names to what they change of `negatives`, or to null for the same training without negatives.
    """

    name: str = Field("signs", pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")
    output: str = Field("runs", description="folder that holds run directories")
    seed: Seed = 0
    data: ClipDataConfig
    tower: TowerConfig = TowerConfig()
    base: ClipTrainingConfig = ClipTrainingConfig()
    negatives: NegativesConfig = NegativesConfig()
    fine_grained: ClipFineGrainedConfig = ClipFineGrainedConfig()
    training: ClipTrainingConfig = ClipTrainingConfig()
    controls: dict[str, dict[str, Any] | None] = Field({"vanilla": None})
    stress: ClipStressConfig = ClipStressConfig()
    split: Split = Field("test", description="split that is measured")
    bootstrap: PositiveInt = 1000

    @model_validator(mode="after")
    def _consistent(self) -> ClipsConfig:
        if self.split == "train":
            raise ValueError("split=train is what is trained on: set split to validation or test")
        for name in self.controls:
            if name in ("base", "san") or not name.isidentifier():
                raise ValueError(f"controls: {name!r} is no name for a control (letters, digits, _; not base or san)")
            self.negatives_of(name)
        return self

    def negatives_of(self, name: str) -> NegativesConfig | None:
        """The negatives of `san` or of a control, None where it has none. Raises ValueError: wrong settings."""
        changed = {} if name == "san" else self.controls[name]
        if changed is None:
            return None
        try:
            return NegativesConfig.model_validate({**self.negatives.model_dump(mode="json"), **changed})
        except ValidationError as error:
            told = "; ".join(f"{'.'.join(map(str, found['loc']))}: {found['msg']}" for found in error.errors())
            raise ValueError(f"controls.{name}: {told}") from None
