"""When rounds end, and with which: pure rules on what each has come to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from repair_ray.config import RoundsConfig
from repair_ray.rounds.spending import Spent


@dataclass(frozen=True)
class Measured:
    """A retriever as the rules see it: mean R@1 on validation and zero-shot accuracy, in percent, where measured."""

    validation: float | None
    zeroshot: float | None = None


@dataclass(frozen=True)
class Ended:
    """How many rounds were repaired, with which one the run ends, and why there is no further one.

    `result` 0 is the base. `reason` is None where a single round was asked for.
    """

    rounds: int
    result: int
    reason: str | None


def ending(config: RoundsConfig, measured: Sequence[Measured], spent: Spent, new: int | None) -> Ended | None:
    """Whether the rounds end here, before a further one is repaired; None while they go on.

    Args:
        measured: the base, then each round so far. spent: by all of them. new: failures of the next round, where it
            was mined.
    """
    done, last = len(measured) - 1, measured[-1]
    if done == 0:
        # There is nothing yet to end with: a first round without failures is an error of its own.
        return None
    best = max(range(len(measured)), key=lambda number: (_or_least(measured[number].validation), -number))
    drop = _difference(measured[best], last)
    if config.max_drop is not None and drop is not None and drop > config.max_drop:
        lost = f"round {done} is {drop:.2f} points of R@1 on validation below {_named(best)}"
        return Ended(done, best, f"{lost}, more than rounds.max_drop={config.max_drop:g}: rolled back")
    guard, before = config.zeroshot, measured[0].zeroshot
    if guard is not None and before is not None and last.zeroshot is not None:
        forgotten = before - last.zeroshot
        if forgotten > guard.max_drop:
            lost = f"round {done} has lost {forgotten:.2f} points of zero-shot accuracy"
            limit = f"rounds.zeroshot.max_drop={guard.max_drop:g}"
            return Ended(done, done - 1, f"{lost}, more than {limit}: rolled back")
    gain = _difference(last, measured[-2])
    if config.min_gain is not None and gain is not None and gain < config.min_gain:
        least = f"rounds.min_gain={config.min_gain:g}"
        return Ended(done, done, f"round {done} has gained {gain:.2f} points of R@1 on validation, less than {least}")
    if done >= config.number:
        return Ended(done, done, f"rounds.number={config.number} are done")
    beyond = spent.beyond(config.budget)
    if beyond is not None:
        return Ended(done, done, beyond)
    return Ended(done, done, "no new failures") if new == 0 else None


def _difference(one: Measured, other: Measured) -> float | None:
    return None if one.validation is None or other.validation is None else one.validation - other.validation


def _or_least(validation: float | None) -> float:
    return float("-inf") if validation is None else validation


def _named(number: int) -> str:
    return "the base" if number == 0 else f"round {number}"
