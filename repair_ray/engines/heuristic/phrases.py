"""What a parsed caption is made of: tokens, noun phrases, relations (ours)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Token:
    """One word or sign of a caption; `text[start:end]` is its place."""

    text: str
    lower: str
    start: int
    end: int


@dataclass(frozen=True)
class Attr:
    """A known modifier: its class, its canonical value, the index of its token."""

    cls: str
    value: str
    token: int


@dataclass(frozen=True)
class Phrase:
    """A noun phrase over tokens [start, end). `count` is None when no number is stated.

    `opens` are the modifiers that no word list knows, as (singular word, token index); `role` is the preposition before
    the phrase, `^` for the first phrase.
    """

    start: int
    end: int
    head: str
    head_token: int
    plural: bool
    count: int | None
    count_token: int | None
    attrs: tuple[Attr, ...]
    opens: tuple[tuple[str, int], ...]
    role: str = ""

    def values(self, cls: str) -> frozenset[str]:
        """The stated values of one class of modifiers."""
        return frozenset(attr.value for attr in self.attrs if attr.cls == cls)

    @property
    def classes(self) -> tuple[str, ...]:
        """The classes that the phrase states, in the order of its words."""
        return tuple(dict.fromkeys(attr.cls for attr in self.attrs))


@dataclass(frozen=True)
class Relation:
    """Phrase `subject` lies at `sign` of phrase `object` on `axis`; said by tokens [start, end)."""

    subject: int
    object: int
    axis: str
    sign: int
    start: int
    end: int


@dataclass(frozen=True)
class Parsed:
    """A caption, its tokens, its phrases in the order of the words, and the relations between them."""

    text: str
    tokens: tuple[Token, ...]
    phrases: tuple[Phrase, ...]
    relations: tuple[Relation, ...]
