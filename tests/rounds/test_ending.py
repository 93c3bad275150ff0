"""When rounds end, and with which: each rule on figures whose outcome is plain."""

from __future__ import annotations

from typing import Any

import pytest

from repair_ray.config import RoundsConfig
from repair_ray.rounds.ending import Ended, Measured, ending
from repair_ray.rounds.spending import Spent

NOTHING = Spent(0, 0, 0.0, 0.0)


def after(*validation: float | None, new: int | None = 5, spent: Spent = NOTHING, **settings: Any) -> Ended | None:
    """What becomes of a run whose base and rounds have these scores on validation."""
    return ending(RoundsConfig.model_validate(settings), [Measured(score) for score in validation], spent, new)


def test_the_first_round_is_always_made() -> None:
    spent = Spent(10**9, 10**9, 10.0**9, 10.0**9)
    assert after(50.0, number=3, min_gain=100.0, budget={"tokens": 1}, spent=spent, new=0) is None


def test_as_many_rounds_as_were_asked_for() -> None:
    assert after(1.0, 2.0, number=2) is None
    assert after(1.0, 2.0, 3.0, number=2) == Ended(2, 2, "rounds.number=2 are done")


@pytest.mark.parametrize(("third", "ends"), [(30.9, True), (31.0, False)])
def test_a_gain_below_the_least_is_the_last(third: float, ends: bool) -> None:
    found = after(10.0, 30.0, third, number=9, min_gain=1.0)
    assert (found is not None) is ends
    if found:
        assert (found.rounds, found.result) == (2, 2)
        assert found.reason == "round 2 has gained 0.90 points of R@1 on validation, less than rounds.min_gain=1"


def test_the_gain_of_the_first_round_is_unknown_without_a_score_of_the_base() -> None:
    assert after(None, 10.0, number=9, min_gain=1.0) is None
    assert after(None, 10.0, 10.5, number=9, min_gain=1.0) is not None


def test_a_drop_takes_the_run_back_to_its_best_round() -> None:
    found = after(10.0, 30.0, 32.0, 31.0, 28.9, number=9, max_drop=3.0)
    assert found is not None and (found.rounds, found.result) == (4, 2)
    assert found.reason and "3.10 points" in found.reason and "below round 2" in found.reason
    assert after(10.0, 30.0, 32.0, 31.0, 29.0, number=9, max_drop=3.0) is None
    worse = after(10.0, 6.0, number=9, max_drop=3.0)
    assert worse is not None and (worse.rounds, worse.result) == (1, 0)
    assert worse.reason and "below the base" in worse.reason


def test_of_equal_rounds_the_earlier_is_the_best() -> None:
    found = after(10.0, 30.0, 30.0, 20.0, number=9, max_drop=3.0)
    assert found is not None and found.result == 1


def test_what_was_forgotten_counts_against_the_base() -> None:
    config = RoundsConfig.model_validate({"number": 9, "zeroshot": {"classes": "x", "max_drop": 2.0}})
    base, first = Measured(None, 60.0), Measured(None, 58.0)
    assert ending(config, [base, first], NOTHING, 5) is None
    found = ending(config, [base, first, Measured(None, 57.9)], NOTHING, 5)
    assert found is not None and (found.rounds, found.result) == (2, 1)
    assert found.reason and "lost 2.10 points of zero-shot accuracy" in found.reason


def test_a_spent_budget_and_no_new_failure_end_it() -> None:
    spent = Spent(100, 0, 0.0, 0.0)
    assert after(1.0, 2.0, number=9, budget={"tokens": 100}, spent=spent) == Ended(
        1, 1, "rounds.budget.tokens=100 is spent: 100"
    )
    assert after(1.0, 2.0, number=9, budget={"tokens": 101}, spent=spent) is None
    assert after(1.0, 2.0, number=9, new=0) == Ended(1, 1, "no new failures")
