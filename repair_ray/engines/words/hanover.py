"""English and German by the Hanover Tagger (HanTa): an HMM over morphemes, trained on BNC and TIGER (heuristic).

C. Wartena, "A Probabilistic Morphology Model for German Lemmatization", KONVENS 2019.
"""

from __future__ import annotations

import gzip
import pickle
import re
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

from HanTa import HanoverTagger as hanover

from repair_ray.engines.words import Pos, Word

# The tagger's time grows with the square of a word's length; German compounds are below this.
LONGEST = 60
_WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")
# The package's models are pickles of dicts, sets and numpy numbers; nothing else is let in.
_ALLOWED = {
    ("numpy._core.multiarray", "scalar"),
    ("numpy.core.multiarray", "scalar"),
    ("numpy", "dtype"),
}


class _NumbersOnly(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"a tagger's model must not name {module}.{name}")
        return super().find_class(module, name)


class HanoverLanguage:
    """A language that HanTa tags; `prefixes` maps the beginning of a tag to a part of speech.

    Words that are `empty` are no content words, whatever their tag.
    """

    file: ClassVar[str]
    prefixes: ClassVar[dict[str, Pos]]
    empty: ClassVar[frozenset[str]] = frozenset()

    def __init__(self) -> None:
        # By its full path: HanTa itself would first take a file of this name in the working directory.
        with gzip.open(Path(hanover.__file__).parent / self.file) as file:
            model = _NumbersOnly(file).load()
        self._tagger = hanover.HanoverTagger(None, model)
        self._tagger.strict = False  # as when it reads the file itself: words that training never saw are analysed
        # A caption is read by one step after another.
        self._read = lru_cache(maxsize=2**16)(self._tagged)

    def words(self, text: str) -> list[Word]:
        """See `Language`. A text all in lower case, or in capitals (glosses), is tagged without regard to case.

        A word longer than `LONGEST` letters is taken for none that means something.
        """
        return list(self._read(text))

    def _tagged(self, text: str) -> tuple[Word, ...]:
        found = list(_WORD.finditer(text))
        if not found:
            return ()
        tokens = [_token(match[0]) for match in found]
        cased = any(token != token.lower() for token in tokens)
        tagged = self._tagger.tag_sent(tokens, casesensitive=cased)
        return tuple(
            Word(match[0], match.start(), match.end(), lemma, self._pos(match[0], tag), tag)
            for match, (_, lemma, tag) in zip(found, tagged, strict=True)
        )

    def inflected(self, lemma: str, like: Word) -> str:
        """See `Language`: the lemma itself."""
        return lemma

    def before(self, word: str, following: str) -> str:
        """See `Language`: no change."""
        return word

    def _pos(self, text: str, tag: str) -> Pos | None:
        if len(text) > LONGEST or text.lower() in self.empty:
            return None
        return next((pos for prefix, pos in self.prefixes.items() if tag.startswith(prefix)), None)


def _token(text: str) -> str:
    token = text[:LONGEST]
    return token.lower() if len(token) > 1 and token.isupper() else token


# Where something is, which the tagger takes for nouns and verbs ("to the left of", "left of").
_PLACES = frozenset(["left", "right", "top", "bottom", "front", "back", "side", "middle", "next"])
# Written with a vowel and spoken with a consonant, and the other way round.
_LIKE_CONSONANT = re.compile(r"(?:uni|use|usu|uten|eu|ewe|one|once)", re.IGNORECASE)
_SILENT = re.compile(r"(?:hour|honest|hono|heir)", re.IGNORECASE)


class English(HanoverLanguage):
    """English; tags are the BNC's C5."""

    file = "morphmodel_en.pgz"
    empty = _PLACES
    prefixes: ClassVar[dict[str, Pos]] = {"NN": "noun", "NP": "noun", "VV": "verb", "AJ": "adjective", "CRD": "number"}

    def inflected(self, lemma: str, like: Word) -> str:
        """Plurals and third persons take an s, with the usual changes of spelling; other forms are the lemma."""
        if like.tag not in ("NN2", "VVZ"):
            return lemma
        if re.search(r"[^aeiou]y$", lemma):
            return f"{lemma[:-1]}ies"
        return lemma + ("es" if re.search(r"(?:s|x|z|ch|sh)$", lemma) else "s")

    def before(self, word: str, following: str) -> str:
        """`a` or `an` by the letters that follow."""
        if word.lower() not in ("a", "an"):
            return word
        vowel = following[:1].lower() in "aeiou" and not _LIKE_CONSONANT.match(following)
        return word[0] + ("n" if vowel or _SILENT.match(following) else "")


class German(HanoverLanguage):
    """German; tags are STTS."""

    file = "morphmodel_ger.pgz"
    prefixes: ClassVar[dict[str, Pos]] = {
        "NN": "noun",
        "NE": "noun",
        "VV": "verb",
        "ADJ": "adjective",
        "CARD": "number",
    }

    def inflected(self, lemma: str, like: Word) -> str:
        """Adjectives keep the ending; other forms are the lemma."""
        ending = like.text[len(like.lemma) :] if like.text.lower().startswith(like.lemma.lower()) else ""
        return lemma + ending.lower() if like.pos == "adjective" else lemma
