"""Intervals, from scipy."""

from __future__ import annotations

import numpy as np
from scipy import stats


def bootstrap_interval(values: np.ndarray, resamples: int = 1000, seed: int = 0) -> tuple[float, float]:
    """95 % percentile bootstrap interval of the mean of `values [N]`, resampling queries."""
    if len(values) < 2 or np.ptp(values) == 0:
        return float(values.mean()), float(values.mean())
    result = stats.bootstrap(
        (values,), np.mean, n_resamples=resamples, method="percentile", batch=64, rng=np.random.default_rng(seed)
    )
    return float(result.confidence_interval.low), float(result.confidence_interval.high)


def mean_interval(values: list[float]) -> tuple[float, float, float]:
    """Mean over seeds with its 95 % t interval: (mean, low, high); the interval of one value is infinite."""
    mean = float(np.mean(values))
    if len(values) < 2:
        return mean, -float("inf"), float("inf")
    half = float(stats.t.ppf(0.975, len(values) - 1) * stats.sem(values))
    return mean, mean - half, mean + half


def wilson_interval(hits: int, of: int) -> tuple[float, float]:
    """95 % Wilson score interval of the share `hits / of`, within [0, 1]. Raises ValueError where `of` is 0."""
    interval = stats.binomtest(hits, of).proportion_ci(confidence_level=0.95, method="wilson")
    return float(interval.low), float(interval.high)
