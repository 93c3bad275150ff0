"""Which words may stand in for each other: by sight, by text, at random, or as a list says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from repair_ray.engines.san.prototypes import Likeness, confusable, listed_words, random_words
from repair_ray.engines.san.totals import WordTotals
from repair_ray.engines.san.vocabulary import names_of
from repair_ray.engines.words import Key

Similarity = Literal["visual", "text", "random"]


# A tagger takes some words for another part of speech now and then: such a reading of a lemma does not count.
USUAL = 0.2


class NothingAlike(ValueError):
    """No word may stand in for another; the message says how near it came, and which setting to change."""


def likenesses(
    totals: WordTotals,
    similarity: Similarity,
    *,
    alpha: float,
    beta: float,
    nearest: int,
    seed: int = 0,
    pairs: Sequence[tuple[str, str]] | None = None,
    same: Sequence[tuple[str, str]] = (),
) -> list[Likeness]:
    """The words that are like each word of `totals`, nearest first, at most `nearest` of them.

    Args:
        similarity: `visual`, by the prototypes that were matched with `alpha` (SAN); `text`, by the text vectors;
            `random`, drawn by `seed`.
        beta: the least cosine of two words; `alpha` is named where nothing matched.
        pairs: a list that says it instead.
        same: pairs of words that mean the same, which never stand in for each other: what says the same looks alike.

    Raises:
        NothingAlike: there is no such pair.
    """
    keys = totals.keys
    if not keys:
        raise NothingAlike("the captions hold no content word; is negatives.language right?")
    names, usual = names_of(keys, totals.forms), _usual(totals)
    alike_in_meaning = frozenset(
        frozenset((word, other))
        for one, two in same
        for word in names.get(one.casefold(), ())
        for other in names.get(two.casefold(), ())
    )
    kept: dict[str, Any] = {"nearest": nearest, "same": alike_in_meaning}
    if pairs is not None:
        found = listed_words(pairs, keys, names, **kept)
        if not found:
            raise NothingAlike(
                f"none of the {len(pairs)} listed pairs has both of its words, as one part of speech, in the captions; "
                "is negatives.language right?"
            )
        return found
    if similarity == "random":
        found = random_words(keys, usual, seed=seed, **kept)
        if not found:
            raise NothingAlike("the captions hold no two words of one part of speech; is negatives.language right?")
        return found
    if similarity == "text":
        vectors, there = np.stack([totals.text_vectors[key] for key in keys]), usual
    else:
        vectors, there = totals.sums.vectors(), usual & (totals.sums.matches > 0)
    if not there.any():
        best = float(totals.sums.best.max(initial=-np.inf))
        raise NothingAlike(
            f"no visual token has a cosine of negatives.alpha={alpha:g} with a word of its captions "
            f"(the nearest has {best:.3f}); lower it"
        )
    found = confusable(vectors, keys, there, beta=beta, **kept)
    if not found:
        near = confusable(vectors, keys, there, beta=-1.0, nearest=1, same=alike_in_meaning)
        best = max((pair.cosine or -1.0 for pair in near), default=-2.0)
        told = "no two are of one part of speech" if best < -1 else f"the nearest two have {best:.3f}"
        raise NothingAlike(f"no two words have a cosine of negatives.beta={beta:g} ({told}); lower it")
    return found


def _usual(totals: WordTotals) -> np.ndarray:
    """Which words are their lemma's usual reading, or one of several: bool `[W]` (ours, heuristic)."""
    most: dict[str, int] = {}
    for (lemma, _), items in zip(totals.keys, totals.items, strict=True):
        most[lemma.casefold()] = max(items, most.get(lemma.casefold(), 0))
    shares = [items / most[lemma.casefold()] for (lemma, _), items in zip(totals.keys, totals.items, strict=True)]
    return np.array(shares) >= USUAL


def alike_of(totals: WordTotals, found: Sequence[Likeness]) -> dict[Key, list[Key]]:
    """The words that may stand in for each word, in the order of `found`."""
    made: dict[Key, list[Key]] = {}
    for pair in found:
        made.setdefault(totals.keys[pair.word], []).append(totals.keys[pair.other])
    return made
