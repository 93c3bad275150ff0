"""The words of many items: how often, in which forms, and the sums of the visual tokens that match them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from repair_ray.engines.san.prototypes import PrototypeSums
from repair_ray.engines.san.vocabulary import Form, count_forms
from repair_ray.engines.words import Key, Language, keywords

Encode = Callable[[list[str]], np.ndarray]


@dataclass
class WordTotals:
    """The words of some items: their keys, in order, with sums over all items.

    `items` counts the items whose captions hold a word; `text_vectors` is empty where none were asked for.
    """

    keys: list[Key]
    sums: PrototypeSums
    items: list[int]
    forms: dict[Key, Counter[Form]]
    text_vectors: dict[Key, np.ndarray] = field(default_factory=dict)

    @classmethod
    def merged(cls, parts: Iterable[WordTotals]) -> WordTotals:
        """All parts added up: the same to the last bit in whichever parts and order the items came.

        Where parts differ in a word's text vector, the first counts.
        """
        parts = list(parts)
        keys = sorted({key for part in parts for key in part.keys})
        place = {key: n for n, key in enumerate(keys)}
        width = max((part.sums.sums.shape[1] for part in parts), default=0)
        whole = cls(keys, PrototypeSums(len(keys), width), [0] * len(keys), {key: Counter() for key in keys})
        for part in parts:
            if part.keys:
                whole.sums.merge(part.sums, [place[key] for key in part.keys])
            for key, items in zip(part.keys, part.items, strict=True):
                whole.items[place[key]] += items
                whole.forms[key].update(part.forms[key])
            whole.text_vectors = {**part.text_vectors, **whole.text_vectors}
        return whole


class WordMatcher:
    """Finds the words of captions and matches them with their items' tokens (methods, section 3, step 1).

    Args:
        encode: texts to unit features `[N, D]`; None where only the words are wanted.
        prompt: what a word is encoded in, with `{}` for its lemma.
        alpha: the least cosine of a match.
    """

    def __init__(
        self, language: Language, encode: Encode | None = None, prompt: str = "{}", alpha: float = 0.7
    ) -> None:
        self._language, self._encode, self._prompt, self._alpha = language, encode, prompt, alpha
        self._vectors: dict[Key, np.ndarray] = {}

    def match(
        self, captions: Sequence[Sequence[str]], tokens: Sequence[np.ndarray] | None = None
    ) -> tuple[WordTotals, list[int]]:
        """The words of some items, and how many matches each item gave.

        Args:
            captions: the captions of each item.
            tokens: unit tokens `[T, D]` of each item; None: nothing is matched.
        """
        words = [keywords([w for text in texts for w in self._language.words(text)]) for texts in captions]
        keys = sorted({word.key for found in words for word in found})
        place = {key: n for n, key in enumerate(keys)}
        features = self._features(keys)
        sums = PrototypeSums(len(keys), features.shape[1])
        items: Counter[Key] = Counter()
        matches = []
        for number, found in enumerate(words):
            own = sorted({word.key for word in found})
            items.update(own)
            held = [place[key] for key in own]
            matches.append(0 if tokens is None else sums.add(features, tokens[number], held, self._alpha))
        forms = count_forms(word for found in words for word in found)
        vectors = {} if self._encode is None else {key: self._vectors[key] for key in keys}
        return WordTotals(keys, sums, [items[key] for key in keys], forms, vectors), matches

    def _features(self, keys: list[Key]) -> np.ndarray:
        """Features of bare words `[W, D]`, each encoded once; `[W, 0]` without an encoder."""
        if self._encode is None or not keys:
            return np.zeros((len(keys), 0), np.float32)
        new = [key for key in keys if key not in self._vectors]
        if new:
            made = self._encode([self._prompt.replace("{}", lemma) for lemma, _ in new])
            self._vectors.update(zip(new, made, strict=True))
        return np.stack([self._vectors[key] for key in keys])
