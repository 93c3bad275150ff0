"""Tests of composition: does the right caption score above a wrong one of the same words? Pure functions of scores.

A tie is wrong everywhere, and so is a score that is not finite. SugarCrepe's and Winoground's authors count so too;
ARO's `argmax` lets a tie go to whichever option comes first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from repair_ray.evaluation.agreement import share
from repair_ray.evaluation.retrieval import TIE

TIE_RULE = "a tie is wrong"
# VG-Attribution leaves out pairs of attributes with fewer cases.
MIN_ATTRIBUTE_CASES = 25


def above(right: np.ndarray, wrong: np.ndarray) -> np.ndarray:
    """Whether each right score `[...]` lies above the wrong one by more than the rounding of a matrix product."""
    with np.errstate(invalid="ignore"):
        found: np.ndarray = np.asarray(right - wrong > TIE)
        return found


def options_right(scores: np.ndarray) -> np.ndarray:
    """For scores `[N, options]` with the true option first: is it above all others? bool `[N]`."""
    return np.asarray(above(scores[:, :1], scores[:, 1:]).all(axis=1))


def winoground(scores: np.ndarray) -> dict[str, np.ndarray]:
    """bool `[N]` for `text`, `image` and `group`, of scores `[N, caption, image]` where equal places belong together.

    Text: each picture prefers its own caption. Image: each caption prefers its own picture. Group: both
    (arXiv 2204.03162).
    """
    own = scores[:, [0, 1], [0, 1]]
    # [:, i]: the other caption of picture i; and the other picture of caption i.
    text = np.asarray(above(own, scores[:, [1, 0], [0, 1]]).all(axis=1))
    image = np.asarray(above(own, scores[:, [0, 1], [1, 0]]).all(axis=1))
    return {"text": text, "image": image, "group": text & image}


def accuracy(right: np.ndarray) -> dict[str, Any]:
    """Hits, cases, percent and 95 % Wilson interval of bool `[N]`; percent is None where N is 0."""
    return share(int(np.count_nonzero(right)), len(right))


def macro(parts: dict[str, dict[str, Any]]) -> float | None:
    """The mean of the percentages of all parts that have a case; None where none has."""
    found = [part["percent"] for part in parts.values() if part["percent"] is not None]
    return round(float(np.mean(found)), 3) if found else None


def by_group(
    right: np.ndarray, groups: Sequence[str], *, min_cases: int = 1, left_out: frozenset[str] = frozenset()
) -> dict[str, Any]:
    """Accuracy of each group and their macro average, as ARO reports relations and attributes.

    Args:
        right: bool `[N]`; groups: the name of each.
        min_cases: smaller groups stay out of the average, and are counted.
        left_out: groups that stay out of it by name, such as relations that hold both ways.
    """
    names = np.asarray(groups)
    found = {str(name): accuracy(right[names == name]) for name in np.unique(names)}
    kept = {name: part for name, part in found.items() if part["of"] >= min_cases and name not in left_out}
    few = [name for name, part in found.items() if part["of"] < min_cases]
    return {
        "macro": macro(kept),
        "all": accuracy(right),
        "groups": kept,
        "left_out": {
            "few_cases": len(few),
            "named": sorted(left_out & found.keys()),
            "cases": len(right) - sum(part["of"] for part in kept.values()),
        },
    }
