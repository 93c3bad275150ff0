"""Intervals: by hand, and that they cover what they should."""

from __future__ import annotations

import math

import numpy as np
import pytest

from repair_ray.evaluation.statistics import bootstrap_interval, mean_interval


def test_bootstrap_is_near_the_normal_interval() -> None:
    hits = np.array([1.0] * 300 + [0.0] * 700)
    low, high = bootstrap_interval(hits, 2000, seed=1)
    half = 1.96 * math.sqrt(0.3 * 0.7 / 1000)
    assert low == pytest.approx(0.3 - half, abs=0.004)
    assert high == pytest.approx(0.3 + half, abs=0.004)


def test_bootstrap_covers_the_truth_about_95_times_in_100() -> None:
    rng = np.random.default_rng(0)
    covered = 0
    for trial in range(200):
        low, high = bootstrap_interval((rng.random(150) < 0.4).astype(float), 300, seed=trial)
        covered += low <= 0.4 <= high
    assert 178 <= covered <= 200


def test_bootstrap_depends_on_the_seed_alone() -> None:
    values = np.random.default_rng(0).random(50)
    assert bootstrap_interval(values, 200, 3) == bootstrap_interval(values, 200, 3)
    assert bootstrap_interval(values, 200, 3) != bootstrap_interval(values, 200, 4)


@pytest.mark.parametrize("values", [[1.0], [0.0, 0.0, 0.0], [0.5] * 9])
def test_bootstrap_of_equal_values_is_a_point(values: list[float]) -> None:
    assert bootstrap_interval(np.array(values)) == (values[0], values[0])


def test_mean_interval_by_hand() -> None:
    # Mean 4, deviation 2, standard error 2 / sqrt(3); t at 0.975 with two degrees of freedom is 4.302653.
    mean, low, high = mean_interval([2.0, 4.0, 6.0])
    half = 4.302653 * 2 / math.sqrt(3)
    assert [mean, low, high] == pytest.approx([4, 4 - half, 4 + half], abs=1e-5)


def test_mean_interval_of_one_value_is_infinite() -> None:
    assert mean_interval([3.0]) == (3.0, -math.inf, math.inf)


def test_mean_interval_of_equal_values_is_a_point() -> None:
    assert mean_interval([1.5, 1.5, 1.5]) == (1.5, 1.5, 1.5)
