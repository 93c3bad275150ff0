"""How many matches a benchmark's candidates have missed: experts' unions, a random sample outside them, an interval.

A pair that no expert proposes is never labelled, and counts as wrong. So pairs outside the unions are sampled and
verified too. The sample is a simple random one of all outside pairs of all queries together, without replacement
(ours): then the number of matches in it is hypergeometric whatever the queries, the unions and their sizes are, and
the interval that inverts the hypergeometric tails (Clopper and Pearson, Biometrika 1934, for a finite population)
covers in at least 95 % of all builds, without any approximation. The same holds for each set of queries chosen
beforehand, such as held-out ones, given how much of the sample fell on them. A query gets its share of the sample in
proportion to its outside pairs.

What it does not cover: errors of the verifier. A match is what the verifier calls a match, inside and outside alike.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy import stats

LEVEL = 0.95


@dataclass(frozen=True)
class Proposal:
    """A gallery item that experts propose for a query, and the rank that each of them gives it (1 is best)."""

    item: int
    ranks: dict[str, int]


def unions(rankings: Mapping[str, np.ndarray], queries: int) -> list[list[Proposal]]:
    """For each query the union of what the experts propose, by item.

    Args:
        rankings: of each expert int64 `[Q, N]`, items best first; -1 where it proposes nothing.
    """
    found: list[dict[int, dict[str, int]]] = [{} for _ in range(queries)]
    for expert, ranking in rankings.items():
        for own, row in zip(found, ranking, strict=True):
            for rank, item in enumerate(row.tolist(), start=1):
                if item >= 0:
                    own.setdefault(item, {})[expert] = rank
    return [[Proposal(item, ranks) for item, ranks in sorted(own.items())] for own in found]


def sample_outside(inside: Sequence[np.ndarray], size: int, n: int, seed: int) -> list[np.ndarray]:
    """A simple random sample of `n` pairs (or of all) of a query and an item outside its union.

    Args:
        inside: for each query the items of its union, each once.
        size: items of the gallery.

    Returns:
        For each query the items drawn, ascending int64; the same for a seed.
    """
    counts = np.array([size - len(own) for own in inside], np.int64)
    ends = np.cumsum(counts)
    total = int(counts.sum())
    drawn = np.sort(np.random.default_rng(seed).choice(total, min(n, total), replace=False)) if total else np.zeros(0)
    found = []
    for query, own in enumerate(inside):
        start = ends[query] - counts[query]
        outside = np.setdiff1d(np.arange(size), own)
        places = drawn[np.searchsorted(drawn, start) : np.searchsorted(drawn, ends[query])] - start
        found.append(outside[places.astype(np.int64)])
    return found


def hypergeometric_interval(found: int, sampled: int, population: int, level: float = LEVEL) -> tuple[int, int]:
    """The least and the largest number of matches in a population of which `found` of `sampled` drawn ones match.

    Those for which as few, and as many, as were found are each no rarer than `(1 - level) / 2`: it covers at least at
    `level`. `found` and the `sampled - found` seen not to match bound it from both sides.

    Raises:
        ValueError: not 0 <= found <= sampled <= population.
    """
    if not 0 <= found <= sampled <= population:
        raise ValueError(f"{found} found of {sampled} sampled of {population}")
    tail = (1 - level) / 2
    least, most = found, population - (sampled - found)
    if sampled == 0 or least == most:
        return least, most
    low = _first(least, most, lambda m: stats.hypergeom.sf(found - 1, population, m, sampled) > tail)
    high = _first(least, most, lambda m: stats.hypergeom.cdf(found, population, m, sampled) <= tail) - 1
    return low, max(low, high)


def _first(low: int, high: int, holds: Callable[[int], bool]) -> int:
    """The least number of [low, high] from which on it holds; high + 1 where it never does."""
    high += 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle + 1, high)
    return low


@dataclass(frozen=True)
class Completeness:
    """Recall of the candidate union in percent, with its interval; None where there is no match at all.

    `missed` is the estimated number of matches outside, `missed_interval` its bounds. `labelled_recall` counts the
    matches that the sample happened to find as well: they are labelled too.
    """

    inside_matches: int
    outside_pairs: int
    sampled: int
    sampled_matches: int
    missed: float | None
    missed_interval: tuple[int, int]
    recall: float | None
    interval: tuple[float, float] | None
    labelled_recall: float | None
    level: float = LEVEL

    def facts(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


def completeness(
    inside_matches: int, outside_pairs: int, sampled: int, sampled_matches: int, level: float = LEVEL
) -> Completeness:
    """Recall of the union: `inside / (inside + missed)`, the missed ones estimated from the sample outside.

    Args:
        inside_matches: matches within the unions, all of which are verified.
        outside_pairs: pairs of a query and an item outside its union.

    Raises:
        ValueError: as `hypergeometric_interval`.
    """
    low, high = hypergeometric_interval(sampled_matches, sampled, outside_pairs, level)
    missed = outside_pairs * sampled_matches / sampled if sampled else (None if outside_pairs else 0.0)
    return Completeness(
        inside_matches,
        outside_pairs,
        sampled,
        sampled_matches,
        missed,
        (low, high),
        _percent(inside_matches, missed),
        (_share(inside_matches, high), _share(inside_matches, low)) if inside_matches or low else None,
        None if missed is None else _percent(inside_matches + sampled_matches, missed - sampled_matches),
        level,
    )


def _percent(inside: int, missed: float | None) -> float | None:
    return None if missed is None or inside + missed == 0 else _share(inside, missed)


def _share(inside: int, missed: float) -> float:
    return round(100 * inside / (inside + missed), 3)
