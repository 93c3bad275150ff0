"""The words of a caption with lemma and part of speech, behind a small protocol: a language is one class and a line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, Protocol

Pos = Literal["noun", "verb", "adjective", "number"]
LanguageName = Literal["en", "de"]
Key = tuple[str, Pos]


@dataclass(frozen=True)
class Word:
    """A word as it stands in a text: `text[start:end]`, its lemma, its part of speech, and the tagger's finer tag.

    `pos` is None for all but content words: nouns, verbs (auxiliaries are none), adjectives with colours, and numbers.
    """

    text: str
    start: int
    end: int
    lemma: str
    pos: Pos | None
    tag: str

    @property
    def key(self) -> Key:
        """What counts as the same word: lemma and part of speech. Raises ValueError where it is no content word."""
        if self.pos is None:
            raise ValueError(f"{self.text!r} is no content word")
        return self.lemma, self.pos


class Language(Protocol):
    """What negatives need of a language."""

    def words(self, text: str) -> list[Word]:
        """Every word of a text, in order; [] where it has none."""
        ...

    def inflected(self, lemma: str, like: Word) -> str:
        """A form of `lemma` as `like` has it, by a simple rule (heuristic), in the lemma's own case."""
        ...

    def before(self, word: str, following: str) -> str:
        """`word` as it is written in front of `following`: an article that goes by what it stands before."""
        ...


def keywords(words: Sequence[Word]) -> list[Word]:
    """Content words only."""
    return [word for word in words if word.pos is not None]


@lru_cache(maxsize=4)
def language(name: LanguageName) -> Language:
    """The language of that name; its model (a tenth of a second, some 30 MB) is loaded once a process."""
    from repair_ray.engines.words.hanover import English, German

    return English() if name == "en" else German()
