"""How many rounds of repair, what ends them, and what becomes of earlier repairs."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from repair_ray.sections.base import Fraction, PositiveInt, Section


class BudgetConfig(Section):
    """What all rounds together may spend. A round that has begun is finished; no further one begins beyond it."""

    tokens: PositiveInt | None = Field(None, description="tokens that language models read and wrote")
    image_edits: PositiveInt | None = Field(None, description="pictures that editors made")
    gpu_hours: float | None = Field(None, gt=0.0, description="hours of GPUs held by the run's stages")
    cost: float | None = Field(None, gt=0.0, description="in the currency of language.price")


class ZeroShotConfig(Section):
    """Pictures in one folder a class, which a repaired retriever should still tell apart as well as the base did."""

    classes: str = Field(description="folder with a folder of pictures for each class, named as the class")
    templates: str | None = Field(None, description="text file, one template a line, with {} for the class")
    max_drop: float = Field(1.0, ge=0.0, description="points of accuracy below the base that end the rounds")


class RoundsConfig(Section):
    """Round after round, each mined with the retriever that the one before has left (methods, section 1, step 6).

    `rounds: 4` is short for `rounds: {number: 4}`.
    """

    number: PositiveInt = Field(1, description="rounds at most")
    start: Literal["last", "base"] = Field(
        "last", description="what a round's training starts from: the last round's retriever, or the base anew"
    )
    fixed_weight: Fraction = Field(
        1.0,
        description="how often a repair of an earlier round is drawn once its failure is fixed: 1 keeps it, 0 retires "
        "it; one that still fails counts fully",
    )
    min_gain: float | None = Field(
        None, description="points of mean R@1 on validation that a round must gain, or it is the last"
    )
    max_drop: float | None = Field(
        None, ge=0.0, description="points of mean R@1 on validation below the best round that roll a round back"
    )
    budget: BudgetConfig = BudgetConfig()
    changes: dict[PositiveInt, dict[str, Any]] = Field(
        default_factory=dict, description="from a round on, settings in which it differs: {3: {training: {lr: 1e-4}}}"
    )
    zeroshot: ZeroShotConfig | None = Field(None, description="guard against forgetting what the retriever knew before")

    @model_validator(mode="before")
    @classmethod
    def _plain_number(cls, tree: Any) -> Any:
        return {"number": tree} if isinstance(tree, int) and not isinstance(tree, bool) else tree

    @property
    def validated(self) -> str | None:
        """The setting that needs a validation split, or None."""
        return next((name for name in ("min_gain", "max_drop") if getattr(self, name) is not None), None)
