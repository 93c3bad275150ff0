"""What every section of a config shares."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Split = Literal["train", "validation", "test"]

PositiveInt = Annotated[int, Field(ge=1)]
Seed = Annotated[int, Field(ge=0)]
Fraction = Annotated[float, Field(ge=0.0, le=1.0)]
# Equal values only, of the operators that Ray knows for its label selectors.
LabelValue = Annotated[str, Field(pattern=r"^[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?$")]
Labels = dict[str, LabelValue]


class Section(BaseModel):
    """Base of every section: unknown keys are errors, and a section never changes after loading."""

    model_config = ConfigDict(extra="forbid", frozen=True)
