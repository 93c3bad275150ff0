"""Align, then mine: a word's visual prototype, and the words whose prototypes lie near each other."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass

import numpy as np

from repair_ray.engines.words import Key

# Sums are kept in this fraction of one, as integers: they come out the same to the last bit in whichever batches and
# order the items come. Room for 2^31 matches of a word.
UNIT = 2**32
# A cosine of equal vectors may miss 1 by the rounding of a matrix product.
ROUNDING = 1e-6
ROWS = 1024
Same = Set[frozenset[int]]  # pairs of places of words that mean the same


class PrototypeSums:
    """Sums of the visual tokens that match each of W words: batches add to it, and parts merge exactly.

    `sums [W, D]` int64 in units of 1 / `UNIT`, `matches [W]` int64, and `best [W]` float32, the highest cosine of each
    word with a token of an item that holds it (-inf where none does).
    """

    def __init__(self, words: int, width: int) -> None:
        self.sums = np.zeros((words, width), np.int64)
        self.matches = np.zeros(words, np.int64)
        self.best = np.full(words, -np.inf, np.float32)

    def add(self, features: np.ndarray, tokens: np.ndarray, held: Sequence[int], alpha: float) -> int:
        """Match one item's tokens with the words that its captions hold (arXiv 2607.09263, eqs. 4 to 7).

        Args:
            features: unit word features `[W, D]`; tokens: unit visual tokens `[T, D]` of the item.
            held: places of the item's words; alpha: the least cosine of a match.

        Returns:
            How many matches there were.
        """
        places = np.unique(np.asarray(held, np.int64))
        if not len(places) or not len(tokens):
            return 0
        cosines = features[places].astype(np.float32) @ tokens.T.astype(np.float32)
        matched = reaches(cosines, alpha)
        fixed = np.rint(tokens.astype(np.float64) * UNIT).astype(np.int64)
        self.sums[places] += matched.astype(np.int64) @ fixed
        self.matches[places] += matched.sum(axis=1)
        self.best[places] = np.maximum(self.best[places], cosines.max(axis=1))
        return int(matched.sum())

    def merge(self, other: PrototypeSums, places: Sequence[int] | None = None) -> None:
        """Add another part's sums; `places` says where its words are here, where they are not the same ones."""
        into = np.arange(len(self.matches)) if places is None else np.asarray(places, np.int64)
        if other.matches.any():  # a part without a match may not know the width
            self.sums[into] += other.sums
        self.matches[into] += other.matches
        self.best[into] = np.maximum(self.best[into], other.best)

    def vectors(self) -> np.ndarray:
        """The prototypes: the normalised mean of each word's matches, float32 `[W, D]`; zeros where it has none."""
        means = self.sums.astype(np.float64)
        norms = np.linalg.norm(means, axis=1, keepdims=True)
        return np.asarray(means / np.where(norms > 0, norms, 1), np.float32)


def reaches(cosines: np.ndarray, threshold: float) -> np.ndarray:
    """Whether cosines are at least `threshold`, but for rounding."""
    return np.asarray(cosines >= threshold - ROUNDING)


@dataclass(frozen=True)
class Likeness:
    """A word that may stand in for another: their places, and the cosine that says so (None where none was asked)."""

    word: int
    other: int
    cosine: float | None


def confusable(
    vectors: np.ndarray,
    keys: Sequence[Key],
    there: np.ndarray,
    *,
    beta: float,
    nearest: int,
    same: Same = frozenset(),
) -> list[Likeness]:
    """For each word the others that are like it, nearest first (arXiv 2607.09263, eqs. 8 and 9).

    Another lemma of the same part of speech whose vector has a cosine of at least `beta`; at most `nearest` of them.
    Equally near ones come in the order of `keys`.

    Args:
        vectors: unit vectors `[W, D]`: visual prototypes (SAN), or features of the text tower (its text rival).
        there: bool `[W]`, False for words that do not count, such as those without a vector.
        same: words that mean the same, and are no likeness.
    """
    found: list[Likeness] = []
    for places in _by_pos(keys, there):
        own = np.ascontiguousarray(vectors[places], np.float32)
        for start in range(0, len(places), ROWS):
            cosines = own[start : start + ROWS] @ own.T
            for row, word in enumerate(places[start : start + ROWS].tolist()):
                near = np.flatnonzero(reaches(cosines[row], beta))
                near = near[np.argsort(-cosines[row, near], kind="stable")]
                others = [(int(places[n]), float(cosines[row, n])) for n in near.tolist()]
                others = [(other, cosine) for other, cosine in others if _differ(keys, word, other, same)]
                found += [Likeness(word, other, cosine) for other, cosine in others[:nearest]]
    return found


def random_words(
    keys: Sequence[Key], there: np.ndarray, *, nearest: int, seed: int, same: Same = frozenset()
) -> list[Likeness]:
    """The random rival: for each word `nearest` others of its part of speech, drawn anew for each by `seed`."""
    found: list[Likeness] = []
    for places in _by_pos(keys, there):
        for word in places.tolist():
            rng = random.Random(f"{seed} {keys[word][0]} {keys[word][1]}")
            others = [other for other in places.tolist() if _differ(keys, word, other, same)]
            found += [Likeness(word, other, None) for other in rng.sample(others, min(nearest, len(others)))]
    return found


def listed_words(
    pairs: Iterable[tuple[str, str]],
    keys: Sequence[Key],
    known_as: dict[str, set[int]],
    *,
    nearest: int,
    same: Same = frozenset(),
) -> list[Likeness]:
    """The likenesses of a list of pairs, both ways, in its order; pairs of words that no caption holds give none.

    Args:
        known_as: places of the words that each text (case-folded) may mean: lemmas and inflected forms.
    """
    found: dict[int, dict[int, None]] = {}
    for pair in pairs:
        for one, two in (pair, pair[::-1]):
            for word in sorted(known_as.get(one.casefold(), ())):
                for other in sorted(known_as.get(two.casefold(), ())):
                    if keys[word][1] == keys[other][1] and _differ(keys, word, other, same):
                        found.setdefault(word, {})[other] = None
    return [Likeness(word, other, None) for word in sorted(found) for other in list(found[word])[:nearest]]


def _by_pos(keys: Sequence[Key], there: np.ndarray) -> list[np.ndarray]:
    """Places of the words of each part of speech."""
    kinds = sorted({pos for _, pos in keys})
    return [np.array([n for n, key in enumerate(keys) if key[1] == kind and there[n]], np.int64) for kind in kinds]


def _differ(keys: Sequence[Key], one: int, other: int, same: Same) -> bool:
    return keys[one][0].casefold() != keys[other][0].casefold() and frozenset((one, other)) not in same
