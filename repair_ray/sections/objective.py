"""What training minimises: a weighted sum of terms, each of them a section."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from repair_ray.plugins import TERMS as TERM
from repair_ray.plugins import offered, read_settings
from repair_ray.sections.base import Fraction, PositiveInt, Section

Placement = Literal["local", "dispersed", "both"]
Weight = Field(1.0, ge=0.0)
Temperature = Field(0.05, gt=0.0)


def switched(tree: Any, terms: tuple[str, ...]) -> Any:
    """A section's settings, with `true` for a term read as its defaults, and `false` as none."""
    if not isinstance(tree, dict):
        return tree
    return {
        key: ({} if value else None) if key in terms and isinstance(value, bool) else value
        for key, value in tree.items()
    }


class SoftLabelsConfig(Section):
    """SASS: the teacher's in-batch image-text distribution as soft labels (SAFT; methods, section 2)."""

    weight: float = Weight
    temperature: float = Temperature
    teacher_temperature: float = Temperature


class IntraModalConfig(Section):
    """ISD: the teacher's in-batch image-image distribution (SAFT), or also text-text (as CUSA)."""

    weight: float = Weight
    temperature: float = Temperature
    teacher_temperature: float = Temperature
    kinds: tuple[Literal["image", "text"], ...] = Field(("image",), min_length=1)


class DistillConfig(Section):
    """Cross-entropy to the teacher's in-batch distribution, with the model's own logit scale (as open_clip)."""

    weight: float = Weight
    teacher_scale: float = Field(100.0, gt=0.0, description="the teacher's logit scale")


class FineGrainedConfig(Section):
    """An image against its caption and that caption's negatives (SAN, NegCLIP, TripletCLIP)."""

    weight: float = Weight
    negatives: PositiveInt = Field(4, description="negative captions drawn for an anchor in a step")
    candidates: Literal["own", "batch"] = Field(
        "own", description="own: the caption's own negatives (SAN); batch: all of the batch's (NegCLIP, TripletCLIP)"
    )


class PositiveMixingConfig(Section):
    """PM: a positive that is hardly nearer than the hardest negative is mixed with it (HNCSE; methods, section 4)."""

    weight: float = Weight
    margin: float = Field(0.1, ge=0.0, description="relative gap below which the positive is mixed")
    mix: Fraction | None = Field(None, description="fixed weight of the positive; unset: by the two similarities")

    @field_validator("mix", mode="before")
    @classmethod
    def _weight(cls, value: Any) -> Any:
        if isinstance(value, str):
            raise ValueError(
                f"positive_mixing.mix={value!r} is no weight from 0 to 1. HNCSE's printed Eq. 2 is not offered: its "
                "weights w1 and w2 are undefined, and where the negative is nearer than the positive (d1 < d2) both of "
                "its coefficients are negative, so that it is no mixture. Leave mix unset for w = d1 / (d1 + d2)"
            )
        return value


class HardNegativeMixingConfig(Section):
    """HNM: mixtures of a query's hardest negatives are further negatives (HNCSE; methods, section 4)."""

    weight: float = Weight
    k: PositiveInt = Field(10, description="hardest negatives of a query that are mixed; below training.batch_size")
    pairs: PositiveInt = Field(16, description="mixtures made for a query in a step")
    mix: Literal["uniform", "similarity"] = "uniform"


class PluggedTermConfig(Section):
    """A term that another package adds. In a config it is a key of `objective`, with its settings beside `weight`."""

    weight: float = Weight
    settings: dict[str, Any] = Field(default_factory=dict, description="what the term is given")


class ObjectiveConfig(Section):
    """`infonce` over anchors, plus the hard pairs where `placement` puts them, plus the terms that are set."""

    infonce_weight: float = Field(1.0, ge=0.0, description="0 where another term takes the place of the global loss")
    placement: Placement = "local"
    local_weight: float = Field(1.0, ge=0.0)
    local_scale: float | None = Field(None, gt=0.0, description="own logit scale of the local grid; unset: the model's")
    push_only: bool = Field(False, description="local grids only push hard negatives apart, and pull nothing")
    paired_fallback: bool = Field(True, description="a direction without an edit takes the mined item's own pair")
    soft_labels: SoftLabelsConfig | None = None
    intra_modal: IntraModalConfig | None = None
    fine_grained: FineGrainedConfig | None = Field(None, description="needs a strategy that writes negatives")
    positive_mixing: PositiveMixingConfig | None = None
    hard_negative_mixing: HardNegativeMixingConfig | None = None
    distill: DistillConfig | None = None
    plugged: dict[str, PluggedTermConfig] = Field(
        default_factory=dict,
        exclude_if=lambda terms: not terms,
        description="terms of other packages, by their names; a name may stand in `objective` itself",
    )

    @model_validator(mode="before")
    @classmethod
    def _switches(cls, tree: Any) -> Any:
        """`soft_labels: true` for a term with its defaults, `false` for none."""
        return _with_plugged(switched(tree, TERMS))

    @model_validator(mode="after")
    def _plugged_settings(self) -> ObjectiveConfig:
        for name, term in self.plugged.items():
            try:
                read_settings(TERM, name, term.settings)
            except ValueError as error:
                raise ValueError(f"objective.{name}: {error}") from None
        return self

    @property
    def taught(self) -> bool:
        """Whether a term reads a teacher's features."""
        return any((self.soft_labels, self.intra_modal, self.distill))


def _with_plugged(tree: Any) -> Any:
    """The settings with the keys that are terms of other packages below `plugged`."""
    if not isinstance(tree, dict):
        return tree
    others = [key for key in tree if key not in ObjectiveConfig.model_fields]
    if not others:
        return tree
    terms = dict(tree.get("plugged") or {})
    moved = [key for key in others if key in offered(TERM)]
    for name in moved:
        # Beside an entry it says in what it differs: so a variant changes one setting of a term, or takes it out.
        given, old = tree[name], terms.pop(name, {})
        given = {} if given is True else given
        if isinstance(given, dict):
            settings = {key: value for key, value in given.items() if key != "weight"}
            weight = given.get("weight", old.get("weight", 1.0))
            terms[name] = {"weight": weight, "settings": {**old.get("settings", {}), **settings}}
        elif given not in (None, False):
            raise ValueError(f"objective.{name}={given!r}: give its settings, or true, or false")
    return {**{key: value for key, value in tree.items() if key not in moved}, "plugged": terms}


TERMS = TERM.builtin
