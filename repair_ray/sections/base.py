"""What every section of a config shares."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo

from repair_ray.plugins import EDITORS, JUDGES, STRATEGIES, Kind, check_name, read_settings

Split = Literal["train", "validation", "test"]

PositiveInt = Annotated[int, Field(ge=1)]
Seed = Annotated[int, Field(ge=0)]
Fraction = Annotated[float, Field(ge=0.0, le=1.0)]
# Equal values only, of the operators that Ray knows for its label selectors.
LabelValue = Annotated[str, Field(pattern=r"^[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?$")]
Labels = dict[str, LabelValue]
EditorName = Annotated[str, AfterValidator(partial(check_name, EDITORS))]
JudgeName = Annotated[str, AfterValidator(partial(check_name, JUDGES))]
Strategy = Annotated[str, AfterValidator(partial(check_name, STRATEGIES))]


def settings_of(kind: Kind, key: str) -> Callable[[dict[str, Any], ValidationInfo], dict[str, Any]]:
    """A validator of the settings of the plugin that the field `key`, which stands before, has named."""

    def check(tree: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        if key in info.data:  # else the name was wrong, which is told already
            read_settings(kind, info.data[key], tree)
        return tree

    return check


# What a plugin is given; left out of a dump where there is none, so that no product is known by it.
PluginSettings = Annotated[dict[str, Any], BeforeValidator(lambda tree: {} if tree is None else tree)]
PLUGIN_SETTINGS: dict[str, Any] = {
    "default_factory": dict,
    "validate_default": True,
    "exclude_if": lambda tree: not tree,
}


class Section(BaseModel):
    """Base of every section: unknown keys are errors, and a section never changes after loading."""

    model_config = ConfigDict(extra="forbid", frozen=True)
