"""The interval of what was missed: by hand, by full enumeration, and over simulated samples."""

from __future__ import annotations

from math import comb

import numpy as np
import pytest

from repair_ray.evaluation.completeness import (
    completeness,
    hypergeometric_interval,
    sample_outside,
    unions,
)


def chance(found: int, sampled: int, matches: int, population: int) -> float:
    """Of drawing so many matches, counted out."""
    ways = comb(matches, found) * comb(population - matches, sampled - found)
    return ways / comb(population, sampled)


def test_by_hand() -> None:
    # Of 5 pairs 4 were drawn and none matched. One match is missed by such a draw once in 5 times: it may be there.
    assert hypergeometric_interval(0, 4, 5) == (0, 1)
    # Of 40 pairs 39 were drawn: missed once in 40 times, a tail of 2.5 %, which is not above it.
    assert hypergeometric_interval(0, 39, 40) == (0, 0)
    assert hypergeometric_interval(0, 38, 39) == (0, 1)
    # All that was drawn matched: what is left may match, or, of ten, one may not.
    assert hypergeometric_interval(4, 4, 5) == (4, 5)


@pytest.mark.parametrize(("found", "sampled", "population"), [(0, 0, 7), (3, 3, 3), (2, 9, 9)])
def test_nothing_and_everything_sampled(found: int, sampled: int, population: int) -> None:
    expected = (0, population) if sampled == 0 else (found, found)
    assert hypergeometric_interval(found, sampled, population) == expected


@pytest.mark.parametrize(("found", "sampled", "population"), [(1, 0, 5), (3, 2, 5), (1, 6, 5), (-1, 2, 5)])
def test_what_cannot_be(found: int, sampled: int, population: int) -> None:
    with pytest.raises(ValueError, match="found of"):
        hypergeometric_interval(found, sampled, population)


@pytest.mark.parametrize(("sampled", "population"), [(1, 30), (7, 30), (15, 41), (29, 30)])
def test_bounds_are_the_first_that_are_no_rarer_than_a_tail(sampled: int, population: int) -> None:
    for found in range(sampled + 1):
        fitting = [
            m
            for m in range(found, population - (sampled - found) + 1)
            if sum(chance(x, sampled, m, population) for x in range(found + 1)) > 0.025
            and sum(chance(x, sampled, m, population) for x in range(found, sampled + 1)) > 0.025
        ]
        assert hypergeometric_interval(found, sampled, population) == (min(fitting), max(fitting))


@pytest.mark.parametrize(("sampled", "population"), [(5, 60), (20, 60), (59, 60)])
def test_covers_at_least_95_times_in_100_whatever_is_true(sampled: int, population: int) -> None:
    """Every possible truth, every possible sample."""
    bounds = [hypergeometric_interval(found, sampled, population) for found in range(sampled + 1)]
    for matches in range(population + 1):
        covered = sum(
            chance(found, sampled, matches, population)
            for found, (low, high) in enumerate(bounds)
            if low <= matches <= high
        )
        assert covered >= 0.95


def test_recall_by_hand() -> None:
    found = completeness(30, 1000, 100, 1)
    # One of 100 sampled: 10 of 1,000 are estimated, so that 30 of 40 were found; one of the 10 is labelled too.
    assert (found.missed, found.recall, found.labelled_recall) == (10.0, 75.0, 77.5)
    low, high = found.missed_interval
    assert low == 1 and 40 < high < 55
    assert found.interval == (round(3000 / (30 + high), 3), round(3000 / 31, 3))


@pytest.mark.parametrize(
    ("counts", "recall", "interval"),
    [
        ((5, 0, 0, 0), 100.0, (100.0, 100.0)),  # every pair was proposed
        ((0, 50, 10, 0), None, None),  # no match anywhere: no recall
        ((0, 50, 10, 1), 0.0, (0.0, 0.0)),  # matches, and none of them proposed
        ((5, 50, 0, 0), None, (9.091, 100.0)),  # nothing sampled: all may match, or none
    ],
)
def test_edges(counts: tuple[int, int, int, int], recall: float | None, interval: tuple[float, float] | None) -> None:
    found = completeness(*counts)
    assert (found.recall, found.interval) == (recall, interval)


def test_a_union_knows_who_proposed_and_at_which_rank() -> None:
    found = unions({"a": np.array([[3, 1], [0, -1]]), "b": np.array([[1, 2], [-1, -1]])}, 2)
    assert [(own.item, own.ranks) for own in found[0]] == [(1, {"a": 2, "b": 1}), (2, {"b": 2}), (3, {"a": 1})]
    assert [(own.item, own.ranks) for own in found[1]] == [(0, {"a": 1})]


def test_the_sample_lies_outside_and_is_the_same_for_a_seed() -> None:
    inside = [np.array([0, 1, 2]), np.arange(10), np.array([], np.int64)]
    drawn = sample_outside(inside, 10, 8, seed=3)
    assert sum(map(len, drawn)) == 8 and not len(drawn[1])
    for own, sample in zip(inside, drawn, strict=True):
        assert len(set(sample.tolist())) == len(sample) and not set(sample.tolist()) & set(own.tolist())
    again = sample_outside(inside, 10, 8, seed=3)
    assert all(np.array_equal(a, b) for a, b in zip(drawn, again, strict=True))
    whole = sample_outside(inside, 10, 1000, seed=3)
    assert [own.tolist() for own in whole] == [[3, 4, 5, 6, 7, 8, 9], [], list(range(10))]
    assert [len(own) for own in sample_outside([np.arange(4)], 4, 9, seed=0)] == [0]


def test_each_outside_pair_is_as_likely_as_any_other() -> None:
    inside = [np.array([0, 1, 2, 3, 4, 5]), np.array([0])]  # 2 and 7 pairs outside, of 8 items
    counts = np.zeros((2, 8))
    for seed in range(900):
        for query, drawn in enumerate(sample_outside(inside, 8, 3, seed)):
            counts[query, drawn] += 1
    outside = np.concatenate([counts[0, 6:], counts[1, 1:]])
    # 3 of 9 in 900 draws: 300, with a deviation of 14.
    assert outside.sum() == 2700 and np.abs(outside - 300).max() < 60
