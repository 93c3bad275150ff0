"""What becomes of edits that people have refused."""

from __future__ import annotations

from typing import Any, Literal, get_args

from pydantic import Field, field_validator

from repair_ray.sections.base import Section

Criterion = Literal["valid", "matches", "scaffold", "minimal", "contrast"]
CRITERIA: tuple[Criterion, ...] = get_args(Criterion)


class ReviewConfig(Section):
    """What people said of a round's edits (`repair-ray review`), for the training that follows.

    More said since: what was trained with the refused edits, and all that was made from it, is made anew.
    """

    exclude: Literal["no", "any", "majority"] = Field(
        "no",
        description="edits that training leaves out: those that anybody refused, or, of each criterion, more than half "
        "of those who answered",
    )
    criteria: tuple[Criterion, ...] = Field(CRITERIA, min_length=1, description="a no to one of these refuses an edit")

    @field_validator("exclude", mode="before")
    @classmethod
    def _no_is_false_in_yaml(cls, value: Any) -> Any:
        return "no" if value is False else value
