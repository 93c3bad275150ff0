"""Exponents of growth, and memory by stage, by hand."""

from __future__ import annotations

import pytest

from benchmarks.growth import exponent, growth_row, most


def test_exponents_of_known_growth() -> None:
    counts = [100, 200, 400, 800]
    assert exponent(counts, [3.0, 6.0, 12.0, 24.0]) == pytest.approx(1)
    assert exponent(counts, [1.0, 4.0, 16.0, 64.0]) == pytest.approx(2)
    assert exponent(counts, [7.0] * 4) == pytest.approx(0)
    # A stage that takes 10 s to start, and then a second for each hundred.
    assert 0.2 < exponent(counts, [11.0, 12.0, 14.0, 18.0]) < 0.3


def test_a_row_tells_the_slope_the_values_and_the_last_doubling() -> None:
    row = growth_row("mine", [10, 20, 40, 80], [1.0, 1.0, 1.0, 4.0], "s")
    # Of log2: values 0, 0, 0, 2 at 0, 1, 2, 3: slope = sum((x - 1.5) * y) / 5 = 1.5 * 2 / 5.
    assert (row["ours"], row["peer"], row["n"]) == (0.6, 1.0, 80)
    assert row["ratio"] == 1.67
    assert row["note"] == "1, 1, 1, 4 s at 10, 20, 40, 80 scenes; last doubling 2.00"


def test_memory_is_that_of_the_time_of_the_stage() -> None:
    seen = [(0.0, 5), (0.5, 9), (1.0, 7), (1.5, 6)]
    assert most(seen, 0.4, 1.1) == 9
    assert most(seen, 0.9, 2.0) == 7
    # Shorter than the time between two looks.
    assert most(seen, 1.31, 1.39) == 6
