"""Products of a round by name, and which of them a control shares with the round."""

from __future__ import annotations

import re
from typing import Any

from repair_ray.config import Config
from repair_ray.run import Run, RunError, read_json

BASE = "base/training"
ROUND = "round-1"
TEACHER = "teacher/embeddings"
# What a product of the round is made from; a variant that agrees in all of it takes the round's.
OF_FAILURES = ("mining",)
OF_VERDICTS = (*OF_FAILURES, "audit", "language")
OF_EDITS = (*OF_VERDICTS, "edit", "selection", "negatives", "strategy", "strategy_settings")


def round_place(number: int) -> str:
    """The folder of a round, counted from 1."""
    return f"round-{number}"


def reviewed_product(edits: str) -> str:
    """The product that holds edits as people have left them, where they refused some."""
    return f"{edits}_reviewed"


def rounds_made(run: Run) -> list[int]:
    """The numbers of the rounds that are finished, to their metrics, in order."""
    found = (re.fullmatch(r"round-(\d+)", path.name) for path in run.folder.glob("round-*"))
    numbers = sorted(int(match[1]) for match in found if match)
    return [number for number in numbers if run.manifest(f"{round_place(number)}/metrics") is not None]


def result_round(run: Run) -> int:
    """The round that the run has ended with; its last finished one while it goes on, the first before any is.

    Raises:
        RunError: the run has ended with its base.
    """
    made = rounds_made(run)
    result = ((read_json(run.folder / "summary.json") or {}).get("result") or {}).get("round")
    if result == 0:
        raise RunError(f"{run.folder} was rolled back to its base; name a round that it has made with --round")
    return int(result) if result in made else made[-1] if made else 1


def result_place(run: Run, number: int | None = None) -> str:
    """The folder of a round; of the one that the run has ended with where unset.

    Raises:
        RunError: that round is not finished, or as `result_round`.
    """
    made = rounds_made(run)
    if number is None:
        return round_place(result_round(run))
    if made and number not in made:
        known = ", ".join(map(str, made))
        raise RunError(f"there is no finished round {number} in {run.folder}; finished: {known}")
    return round_place(number)


def agree(one: Config, other: Config, sections: tuple[str, ...]) -> bool:
    """Whether two configs make the same in these sections, whoever works for them."""
    return all(_what(one, section) == _what(other, section) for section in sections)


def _what(config: Config, section: str) -> Any:
    found = getattr(config, section)
    return found.model_copy(update={"pool": None}) if "pool" in getattr(type(found), "model_fields", {}) else found
