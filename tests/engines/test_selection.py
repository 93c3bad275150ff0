"""Which candidate wins, rule by rule."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from repair_ray.engines.selection import Admission, select

NOT_NEARER = "did not move towards the query"
TOO_FAR = "moved too far from its source"
PREFERRED = "another candidate was preferred"


def choose(
    candidates: Sequence[Admission | None], align_before: float = 0.25, **changes: Any
) -> tuple[int | None, list[str | None]]:
    return select(list(candidates), align_before, **{"min_gain": 0.0, "min_scaffold": 0.5, "alpha": 0.5, **changes})


def test_least_disruptive_wins() -> None:
    # 0.5 * (0.5 + 0.625), 0.5 * (0.375 + 0.875), 0.5 * (0.75 + 0.375) where the last one has left its source.
    candidates = [Admission(0.5, 0.625), Admission(0.375, 0.875), Admission(0.75, 0.375)]
    assert choose(candidates) == (1, [PREFERRED, None, TOO_FAR])


@pytest.mark.parametrize(("alpha", "winner"), [(0.0, 1), (0.5, 1), (0.75, 0), (1.0, 0)])
def test_alpha_weighs_align_against_scaffold(alpha: float, winner: int) -> None:
    # a = 0.75: 0.53125 against 0.5.
    assert choose([Admission(0.5, 0.625), Admission(0.375, 0.875)], alpha=alpha)[0] == winner


def test_moving_away_from_the_query_is_not_admissible() -> None:
    chosen, reasons = choose([Admission(0.125, 1.0), Admission(0.25, 0.5)])
    # Standing still is a gain of 0, which min_gain = 0 allows; so is a scaffold of exactly min_scaffold.
    assert (chosen, reasons) == (1, [NOT_NEARER, None])


def test_min_gain() -> None:
    candidates: list[Admission | None] = [Admission(0.375, 0.75)]
    assert choose(candidates, min_gain=0.125) == (0, [None])
    assert choose(candidates, min_gain=0.126) == (None, [NOT_NEARER])
    assert choose([Admission(0.2, 0.75)], min_gain=-0.1) == (0, [None])


def test_gains_are_right_for_negative_scores() -> None:
    candidates = [Admission(-0.75, 0.9), Admission(-0.25, 0.9)]
    assert choose(candidates, align_before=-0.5) == (1, [NOT_NEARER, None])


@pytest.mark.parametrize("pick", ["minimal", "first"])
def test_ties_go_to_the_earlier_candidate(pick: str) -> None:
    assert choose([None, Admission(0.5, 0.75), Admission(0.75, 0.5)], pick=pick) == (1, [None, None, PREFERRED])


def test_failed_candidates_keep_their_own_reason() -> None:
    assert choose([None, None]) == (None, [None, None])
    assert choose([]) == (None, [])


def test_first_takes_the_first_admissible() -> None:
    candidates = [Admission(0.1, 0.9), Admission(0.3, 0.5), Admission(0.9, 0.9)]
    assert choose(candidates, pick="first") == (1, [NOT_NEARER, None, PREFERRED])


def test_random_is_a_function_of_the_seed_over_admissible_candidates() -> None:
    candidates = [Admission(0.1, 0.9), Admission(0.3, 0.5), Admission(0.9, 0.1), Admission(0.9, 0.9)]
    drawn = [choose(candidates, pick="random", seed=seed)[0] for seed in range(40)]
    assert drawn == [choose(candidates, pick="random", seed=seed)[0] for seed in range(40)]
    assert set(drawn) == {1, 3}
