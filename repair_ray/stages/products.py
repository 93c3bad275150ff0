"""Products of a round by name, and which of them a control shares with the round."""

from __future__ import annotations

from typing import Any

from repair_ray.config import Config

BASE = "base/training"
ROUND = "round-1"
TEACHER = "teacher/embeddings"
# What a product of the round is made from; a variant that agrees in all of it takes the round's.
OF_FAILURES = ("mining",)
OF_VERDICTS = (*OF_FAILURES, "audit", "language")
OF_EDITS = (*OF_VERDICTS, "edit", "selection", "negatives", "strategy")


def agree(one: Config, other: Config, sections: tuple[str, ...]) -> bool:
    """Whether two configs make the same in these sections, whoever works for them."""
    return all(_what(one, section) == _what(other, section) for section in sections)


def _what(config: Config, section: str) -> Any:
    found = getattr(config, section)
    return found.model_copy(update={"pool": None}) if "pool" in getattr(type(found), "model_fields", {}) else found
