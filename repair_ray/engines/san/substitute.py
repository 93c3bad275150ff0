"""Substitute: negative captions by other words (SAN, section 3.4), and by words that change places (NegCLIP)."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from math import comb, prod

from repair_ray.data.text import text_key
from repair_ray.engines.san.vocabulary import Forms, as_written, stand_in
from repair_ray.engines.words import Key, Language, Word, keywords

# Substitutions tried for one caption: all of them where there are no more.
TRIES = 1000
NO_KEYWORD = "the caption has no content word"
NO_LIKENESS = "no word of the caption has one that is like it"
NO_PAIR = "the caption has no two words of one part of speech"
NOT_NEGATIVE = "each substitution may be true of the picture"


@dataclass(frozen=True)
class Negative:
    """A negative caption, and what was put for what, as `(word, other)` texts."""

    text: str
    changes: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Truth:
    """What is known to be true of a picture: keys of its group's captions (`data.text.text_key`), and their words."""

    texts: frozenset[str]
    words: frozenset[Key] = frozenset()

    @classmethod
    def of(cls, captions: Iterable[str], words: Iterable[Word] = ()) -> Truth:
        """From the captions of the group and the words in them."""
        return cls(frozenset(map(text_key, captions)), frozenset(word.key for word in keywords(list(words))))


@dataclass(frozen=True)
class Made:
    """The negatives of a caption; where there is none, why."""

    negatives: list[Negative] = field(default_factory=list)
    reason: str | None = None


def substitute(
    text: str,
    words: Sequence[Word],
    alike: Mapping[Key, Sequence[Key]],
    forms: Forms,
    language: Language,
    truth: Truth,
    *,
    n_hard: int,
    n_swap: int,
    seed: str,
) -> Made:
    """At most `n_hard` different negatives of a caption, each with `n_swap` keywords replaced by words like them.

    A caption with fewer replaceable keywords has all of them replaced (ours). A word that another caption of the group
    holds never stands in, since the negative might then be true (ours); nor is a caption of the group made. Which
    substitutions are taken depends on `seed` alone, such as a caption's id.
    """
    held = keywords(words)
    if not held:
        return Made(reason=NO_KEYWORD)
    options = {place: _options(word, alike, truth) for place, word in enumerate(held)}
    places = [place for place, others in options.items() if others]
    if not places:
        known = any(alike.get(word.key) for word in held)
        return Made(reason=NOT_NEGATIVE if known else NO_LIKENESS)
    rng = random.Random(seed)
    subsets = _subsets(places, min(n_swap, len(places)), rng)
    sizes = [prod(len(options[place]) for place in subset) for subset in subsets]
    total = min(sum(sizes), sys.maxsize)
    made: dict[str, Negative] = {}
    for number in rng.sample(range(total), min(total, TRIES)):
        subset, number = _found(subsets, sizes, number)
        changes = []
        for place in subset:
            number, choice = divmod(number, len(options[place]))
            changes.append((held[place], stand_in(held[place], options[place][choice], forms, language)))
        _keep(made, _negative(text, words, changes, language), truth)
        if len(made) == n_hard:
            break
    return Made(list(made.values()), None if made else NOT_NEGATIVE)


def swap(text: str, words: Sequence[Word], language: Language, truth: Truth, *, n_hard: int, seed: str) -> Made:
    """At most `n_hard` different captions in which two words of one part of speech have changed places.

    As NegCLIP (arXiv 2210.01936, section 4) swaps them: as they stand, but for capitals and articles.
    """
    held = keywords(words)
    pairs = [
        (one, two)
        for one, two in combinations(held, 2)
        if one.pos == two.pos and one.lemma.casefold() != two.lemma.casefold()
    ]
    if not pairs:
        return Made(reason=NO_PAIR if held else NO_KEYWORD)
    random.Random(seed).shuffle(pairs)
    made: dict[str, Negative] = {}
    for one, two in pairs:
        changes = [(one, as_written(two.text, one.text)), (two, as_written(one.text, two.text))]
        _keep(made, _negative(text, words, changes, language), truth)
        if len(made) == n_hard:
            break
    return Made(list(made.values()), None if made else NOT_NEGATIVE)


def _options(word: Word, alike: Mapping[Key, Sequence[Key]], truth: Truth) -> list[Key]:
    return [other for other in alike.get(word.key, ()) if other not in truth.words]


def _subsets(places: list[int], size: int, rng: random.Random) -> list[tuple[int, ...]]:
    """All subsets of that size, or, where there are too many, some of them at random."""
    if comb(len(places), size) <= TRIES:
        return list(combinations(places, size))
    return list(dict.fromkeys(tuple(sorted(rng.sample(places, size))) for _ in range(TRIES)))


def _found(subsets: list[tuple[int, ...]], sizes: list[int], number: int) -> tuple[tuple[int, ...], int]:
    """The subset that the substitution of that number is one of, and its number there."""
    for subset, size in zip(subsets, sizes, strict=True):
        if number < size:
            return subset, number
        number -= size
    raise IndexError(number)


def _keep(made: dict[str, Negative], negative: Negative, truth: Truth) -> None:
    key = text_key(negative.text)
    if key not in truth.texts:
        made.setdefault(key, negative)


def _negative(text: str, words: Sequence[Word], changes: Sequence[tuple[Word, str]], language: Language) -> Negative:
    """The caption with its changes, and the articles before them as they then are."""
    new = {word.start: other for word, other in changes}
    parts, end = [], 0
    for number, word in enumerate(words):
        written = new.get(word.start, word.text)
        following = words[number + 1] if number + 1 < len(words) else None
        if following is not None and following.start in new and text[word.end : following.start].isspace():
            written = language.before(written, new[following.start])
        parts += [text[end : word.start], written]
        end = word.end
    return Negative("".join([*parts, text[end:]]), tuple((word.text, other) for word, other in changes))
