"""Reads captions of the world's grammar back into phrases and relations, tolerant of word order and synonyms (ours).

A text with a word outside the vocabulary is not understood: nothing here guesses.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from repair_ray.world.captions import COUNT_WORDS, SIZE_WORDS, TEXTURE_WORDS, plural
from repair_ray.world.scene import COLOURS, SHAPES, Group


def _lookup(words: dict[str, tuple[str, ...]], extra: dict[str, str]) -> dict[str, str]:
    return {word: value for value, synonyms in words.items() for word in synonyms} | extra


_COUNTS = {word: count for count, words in COUNT_WORDS.items() for word in words} | {
    "an": 1,
    "single": 1,
    "1": 1,
    "2": 2,
    "3": 3,
}
_ADJECTIVES: dict[str, dict[str, str]] = {
    "size": _lookup(SIZE_WORDS, {"huge": "large", "giant": "large"}),
    "colour": {colour: colour for colour in COLOURS} | {"violet": "purple"},
    "texture": _lookup(TEXTURE_WORDS, {"filled": "solid", "spotted": "dotted", "outlined": "hollow"}),
}
_NOUNS: dict[str, tuple[str | None, bool]] = {
    **{shape: (shape, False) for shape in SHAPES},
    **{plural(shape): (shape, True) for shape in SHAPES},
    **{word: (None, False) for word in ("shape", "object", "figure")},
    **{word: (None, True) for word in ("shapes", "objects", "figures")},
}
_CONNECTORS: tuple[tuple[str, str], ...] = (
    (r"(?:to|on|at) (?:the )?(left|right)(?: hand)?(?: side)? of", ""),
    (r"(left|right) of", ""),
    (r"on top of|above|over|atop", "above"),
    (r"underneath|beneath|below|under", "below"),
    (r"next to|and|with|beside|alongside|near|plus|[,;]", "join"),
    (r"which|that", "who"),
)
_FILLERS = frozenset(
    ["is", "are", "was", "were", "placed", "located", "positioned", "sitting", "standing", "there", "also"]
)
_OPENING = re.compile(
    r"^(?:(?:an? |the |this )?(?:picture|image|photo|drawing|scene|illustration) (?:of|showing|shows|with|contains) )"
    r"|^(?:there (?:is|are) )"
)


@dataclass(frozen=True)
class Phrase:
    """What a text says of one group; None where it says nothing.

    `several` is a plural without a number, `definite` a phrase that begins with "the".
    """

    shape: str | None = None
    colour: str | None = None
    size: str | None = None
    texture: str | None = None
    count: int | None = None
    several: bool = False
    definite: bool = False

    def stated(self) -> dict[str, str | int]:
        """The attributes that the phrase states."""
        values = {name: getattr(self, name) for name in ("shape", "colour", "size", "texture", "count")}
        return {name: value for name, value in values.items() if value is not None}

    def fits(self, group: Group) -> bool:
        """Whether all that the phrase says is so of `group`."""
        if self.several and group.count < 2:
            return False
        return all(getattr(group, name) == value for name, value in self.stated().items())


@dataclass(frozen=True)
class Description:
    """What a caption says: phrases in reading order, and relations (subject, relation, object) by index."""

    phrases: tuple[Phrase, ...]
    relations: tuple[tuple[int, str, int], ...] = ()


class _NotUnderstood(Exception):
    pass


@lru_cache(maxsize=65536)
def parse(caption: str) -> Description | None:
    """Read a caption. Returns None when any part of it cannot be understood.

    A relation between two phrases holds between exactly these. After "and" or a comma a relation without a subject
    takes the last relation's: in "A above B and left of C", A is left of C; in "A above B left of C", B is. "the X"
    takes up the last phrase before it that X can name.
    """
    try:
        return _describe(list(_items(_normalised(caption))))
    except _NotUnderstood:
        return None


def parse_phrase(text: str, noun: bool = True) -> Phrase | None:
    """Read a single phrase; `noun=False` also takes adjectives alone ("blue"). Returns None if it is anything else."""
    words = _normalised(text).split()
    try:
        phrase, used = _phrase(words, noun)
    except _NotUnderstood:
        return None
    return phrase if used == len(words) else None


def parse_relation(text: str) -> tuple[Phrase, str, Phrase] | None:
    """Read "X left of Y" (or another relation). Returns None if the text is anything else."""
    try:
        items = list(_items(_normalised(text)))
    except _NotUnderstood:
        return None
    if len(items) != 3:
        return None
    a, relation, b = items
    if (
        isinstance(a, Phrase)
        and isinstance(b, Phrase)
        and isinstance(relation, str)
        and relation not in ("join", "who")
    ):
        return a, relation, b
    return None


def _normalised(text: str) -> str:
    text = re.sub(r"[-\s]+", " ", text.lower()).strip(" .!\"'")
    text = re.sub(r"\s*([,;])\s*", r" \1 ", text).strip(" ,;")
    return _OPENING.sub("", text)


def _items(text: str) -> Iterator[Phrase | str]:
    """Yield the phrases and connectors of a normalised text: a relation's name, "join" or "who"."""
    while text:
        for pattern, name in _CONNECTORS:
            if match := re.match(rf"(?:{pattern})(?= |$)", text):
                yield name or f"{match[1]} of"
                text = text[match.end() :].lstrip()
                break
        else:
            first, _, rest = text.partition(" ")
            if first in _FILLERS:
                text = rest
                continue
            words = text.split()
            phrase, used = _phrase(words)
            yield phrase
            text = " ".join(words[used:])


def _phrase(words: list[str], noun: bool = True) -> tuple[Phrase, int]:
    """Read a phrase from the start of `words`. Returns it and how many words it takes."""
    found: dict[str, str | int] = {}
    definite = False
    for used, word in enumerate(words, 1):
        if word == "the" and used == 1:
            definite = True
            continue
        if word in _NOUNS:
            shape, many = _NOUNS[word]
            if not many:
                found.setdefault("count", 1)
            return _build(found, shape, many and "count" not in found, definite), used
        name, value = _meaning(word)
        if name in found and not (name == "count" and value == 1):  # "a single circle" says one twice
            raise _NotUnderstood
        found[name] = value
    if noun or not found:
        raise _NotUnderstood
    return _build(found, None, False, definite), len(words)


def _build(found: dict[str, str | int], shape: str | None, several: bool, definite: bool) -> Phrase:
    return Phrase(shape=shape, several=several, definite=definite, **found)  # type: ignore[arg-type]


def _meaning(word: str) -> tuple[str, str | int]:
    if word in _COUNTS:
        return "count", _COUNTS[word]
    for name, words in _ADJECTIVES.items():
        if word in words:
            return name, words[word]
    raise _NotUnderstood


def _describe(items: list[Phrase | str]) -> Description:
    phrases: list[Phrase] = []
    relations: list[tuple[int, str, int]] = []
    pending: list[tuple[int, str]] = []  # relations that wait for their object
    last: int | None = None  # the phrase just read
    subject: int | None = None  # the subject of the last relation
    before: Phrase | str = "join"
    for item in items:
        if isinstance(item, Phrase):
            if isinstance(before, Phrase):
                raise _NotUnderstood
            index = _antecedent(item, phrases, [a for a, _ in pending])
            if index is None:
                phrases.append(item)
                index = len(phrases) - 1
            relations += [(a, relation, index) for a, relation in pending]
            pending, last = [], index
        elif item in ("join", "who"):
            if last is None or (item == "who" and pending):
                raise _NotUnderstood
            if item == "who":
                subject = None
        else:
            if last is None or (pending and before != "join"):
                raise _NotUnderstood
            taken_up = before == "join" and subject is not None
            subject = subject if taken_up else last
            pending.append((subject if subject is not None else last, item))
        before = item
    if pending or not phrases or before == "who":
        raise _NotUnderstood
    return Description(tuple(phrases), tuple(relations))


def _antecedent(phrase: Phrase, before: list[Phrase], barred: list[int]) -> int | None:
    """The last earlier phrase that a phrase with "the" can take up; nothing is beside itself, so not in `barred`."""
    if not phrase.definite:
        return None
    for index in reversed(range(len(before))):
        earlier = before[index].stated()
        if index not in barred and all(earlier.get(name) == value for name, value in phrase.stated().items()):
            return index
    return None
