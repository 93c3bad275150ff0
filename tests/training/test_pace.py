"""Data wait and compute by step: bounded stretches, by hand."""

from __future__ import annotations

import json

from repair_ray.training.pace import Pace, by_step, pace_facts


def test_steps_are_told_one_by_one_while_they_are_few() -> None:
    pace = Pace()
    for step, (waited, computed) in enumerate([(0.5, 2.0), (0.25, 1.0)]):
        pace.add(step, waited, computed)
    assert by_step(pace.kept()) == [
        {"step": 1, "steps": 1, "data_wait_seconds": 0.5, "compute_seconds": 2.0},
        {"step": 2, "steps": 1, "data_wait_seconds": 0.25, "compute_seconds": 1.0},
    ]
    facts = pace_facts(pace.kept())
    assert (facts["data_wait_seconds"], facts["compute_seconds"]) == (0.75, 3.0)


def test_more_steps_make_longer_stretches() -> None:
    pace = Pace(most=2)
    for step in range(5):
        pace.add(step, step, 10 * step)
    # Widths 1, 2, 4: steps 0-3, and step 4; the means of 0..3 are 1.5 and 15.
    assert by_step(pace.kept()) == [
        {"step": 1, "steps": 4, "data_wait_seconds": 1.5, "compute_seconds": 15.0},
        {"step": 5, "steps": 1, "data_wait_seconds": 4.0, "compute_seconds": 40.0},
    ]
    assert pace_facts(pace.kept())["compute_seconds"] == 100


def test_an_odd_number_of_stretches_is_halved() -> None:
    pace = Pace(most=3)
    for step in range(4):
        pace.add(step, 1, 0)
    assert [(part["step"], part["steps"]) for part in by_step(pace.kept())] == [(1, 2), (3, 2)]


def test_a_resumed_run_goes_on_and_counts_again_what_it_makes_again() -> None:
    pace = Pace()
    for step in range(3):
        pace.add(step, 1, 2)
    again = Pace(json.loads(json.dumps(pace.kept())))
    for step in range(1, 3):
        again.add(step, 3, 4)
    assert by_step(again.kept())[0] == {"step": 1, "steps": 1, "data_wait_seconds": 1, "compute_seconds": 2}
    assert by_step(again.kept())[1] == {"step": 2, "steps": 2, "data_wait_seconds": 2, "compute_seconds": 3}


def test_a_resumed_run_may_begin_late() -> None:
    pace = Pace(most=4)
    pace.add(6, 1, 1)
    assert by_step(pace.kept()) == [{"step": 7, "steps": 1, "data_wait_seconds": 1, "compute_seconds": 1}]


def test_a_million_steps_stay_few_stretches() -> None:
    pace = Pace()
    for step in range(0, 1_000_000, 997):
        pace.add(step, 0, 1)
    assert len(pace.kept()["windows"]) <= 64
    assert pace_facts(pace.kept())["compute_seconds"] == len(range(0, 1_000_000, 997))


def test_no_step() -> None:
    assert pace_facts(None) == {"data_wait_seconds": 0, "compute_seconds": 0, "by_step": []}
