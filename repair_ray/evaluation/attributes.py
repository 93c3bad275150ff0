"""What the captions of a domain talk of, and how often: words, attribute values, and combinations of attributes.

The phrases come from the heuristic parser, which knows closed classes of English (colours, sizes, textures, ages,
numbers, actions); other modifiers count by their words. All frequencies are document frequencies: how many pictures
have a caption that says so (ours, after the statistics that DSMM-TBIR's prompts are made from; arXiv 2608.10524).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np

from repair_ray.data.text import text_key
from repair_ray.engines.heuristic import lexicon as lex
from repair_ray.engines.heuristic.parse import parse, tokenize
from repair_ray.engines.heuristic.phrases import Phrase

ACTION = "action"
OPEN = "open"
NUMBER = "number"


@dataclass(frozen=True, order=True)
class Named:
    """A noun with its number and some of its attributes, as (class, words) in the order of English.

    `count` is 0 where no number is stated.
    """

    noun: str
    count: int
    plural: bool
    attributes: tuple[tuple[str, str], ...] = ()

    @property
    def text(self) -> str:
        """`two small red circles`, `a dog running`."""
        many = self.count > 1 or (not self.count and self.plural)
        words = [words for cls, words in self.attributes if cls != ACTION]
        words.append(lex.plural(self.noun) if many else self.noun)
        words += [lex.ACTION_FORMS[words][2] for cls, words in self.attributes if cls == ACTION]
        number = [lex.article(words[0])] if self.count == 1 else [lex.number_word(self.count)] if self.count else []
        return " ".join(number + words)


Combination = tuple[Named, ...]


def text_of(combination: Combination) -> str:
    """A combination as a query: `a red circle and two squares`."""
    return " and ".join(named.text for named in combination)


@dataclass
class Statistics:
    """Document frequencies over `images` pictures. `values` are of (class, words)."""

    images: int = 0
    words: Counter[str] = field(default_factory=Counter)
    values: Counter[tuple[str, str]] = field(default_factory=Counter)
    combinations: Counter[Combination] = field(default_factory=Counter)


def attribute_statistics(
    pictures: Sequence[Sequence[str]], *, attributes: int = 2, nouns: int = 2, least: int = 1
) -> Statistics:
    """Count what the captions of each picture state.

    A combination is a noun with up to `attributes` attributes, or two such nouns (with one attribute each at most) of
    one caption. Two nouns are counted only where each is frequent enough alone, which loses nothing (a priori pruning).

    Args:
        pictures: the captions of each picture.
        nouns: 1 or 2.
        least: combinations of fewer pictures are left out.
    """
    found = Statistics(len(pictures))
    singles: Counter[Combination] = Counter()
    for captions in pictures:
        phrases = [phrase for caption in captions for phrase in parse(caption).phrases]
        found.words.update({token.lower for caption in captions for token in tokenize(caption) if _is_word(token.text)})
        found.values.update({value for phrase in phrases for value in _values(phrase)})
        singles.update({(named,) for phrase in phrases for named in _named(phrase, attributes)})
    found.combinations = Counter({key: count for key, count in singles.items() if count >= least})
    if nouns == 2:
        pairs: Counter[Combination] = Counter()
        for captions in pictures:
            pairs.update(set(_pairs(captions, min(attributes, 1), found.combinations)))
        found.combinations.update({key: count for key, count in pairs.items() if count >= least})
    return found


def states(caption: str, combination: Combination) -> bool:
    """Whether a caption states the combination: each part by a phrase of its own."""
    phrases = parse(caption).phrases
    if len(combination) == 1:
        return any(_fits(phrase, combination[0]) for phrase in phrases)
    first, second = combination
    return any(_fits(a, first) and _fits(b, second) for a in phrases for b in phrases if a is not b)


def choose(
    statistics: Statistics, n: int, size: int, least: float, most: float, seed: int
) -> list[tuple[Combination, float]]:
    """Draw `n` combinations (or all, where there are fewer), more often what is more frequent, each text once.

    Args:
        size: pictures of the gallery. A combination's share of pictures times it is the number of matches that is
            expected, which must lie in [`least`, `most`]. Captions leave things out, so that it is rather too low.

    Returns:
        Combinations with their expected matches, in the order drawn; the same for a seed.
    """
    fitting: dict[str, tuple[Combination, float]] = {}
    for combination, images in sorted(statistics.combinations.items()):
        expected = images * size / statistics.images
        if least <= expected <= most:
            fitting.setdefault(text_key(text_of(combination)), (combination, expected))
    found = list(fitting.values())
    return [found[place] for place in draw_weighted([expected for _, expected in found], n, seed)]


def draw_weighted(weights: Sequence[float], n: int, seed: int) -> list[int]:
    """Places of `n` items (or of all) drawn without replacement with these weights, the same for a seed."""
    if not weights:
        return []
    chances = np.asarray(weights, np.float64)
    drawn = np.random.default_rng(seed).choice(
        len(chances), min(n, len(chances)), replace=False, p=chances / chances.sum()
    )
    return [int(place) for place in drawn]


def _is_word(text: str) -> bool:
    return text[0].isalnum()


def _values(phrase: Phrase) -> Iterator[tuple[str, str]]:
    yield from _attributes(phrase)
    if phrase.count is not None:
        yield NUMBER, lex.number_word(phrase.count)


def _attributes(phrase: Phrase) -> list[tuple[str, str]]:
    """The attributes of a phrase, a class at a time, in the order of English; "black and white" is one."""
    ordered = [cls for cls in lex.CLASS_ORDER if cls in phrase.classes]
    found = [(cls, " and ".join(dict.fromkeys(a.value for a in phrase.attrs if a.cls == cls))) for cls in ordered]
    found += [(OPEN, word) for word, _ in phrase.opens]
    actions = sorted(phrase.values(ACTION))
    return found + ([(ACTION, actions[0])] if len(actions) == 1 else [])


def _named(phrase: Phrase, most: int) -> Iterator[Named]:
    own = _attributes(phrase)
    for size in range(min(most, len(own)) + 1):
        for chosen in combinations(own, size):
            yield Named(lex.canonical(phrase.head), phrase.count or 0, phrase.plural, chosen)


def _pairs(captions: Iterable[str], most: int, frequent: Counter[Combination]) -> Iterator[Combination]:
    for caption in captions:
        parts = [[named for named in _named(phrase, most) if (named,) in frequent] for phrase in parse(caption).phrases]
        for first, second in combinations(parts, 2):
            yield from (_ordered(a, b) for a in first for b in second if not _says_twice(a, b))


def _ordered(a: Named, b: Named) -> Combination:
    return (a, b) if a <= b else (b, a)


def _says_twice(a: Named, b: Named) -> bool:
    """Whether one of them holds of all that the other names: "a circle and a red circle"."""
    same = (a.noun, a.count, a.plural) == (b.noun, b.count, b.plural)
    return same and (set(a.attributes) <= set(b.attributes) or set(b.attributes) <= set(a.attributes))


def _fits(phrase: Phrase, named: Named) -> bool:
    same = (lex.canonical(phrase.head), phrase.count or 0, phrase.plural) == (named.noun, named.count, named.plural)
    return same and set(named.attributes) <= set(_attributes(phrase))
