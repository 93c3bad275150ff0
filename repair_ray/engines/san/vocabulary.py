"""The words of a data set: which captions hold them, and in which forms they stand there."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

from repair_ray.engines.words import Key, Language, Word

Form = tuple[str, str]  # the finer tag, and the text in lower case
Forms = Mapping[Key, Mapping[Form, int]]


def count_forms(words: Iterable[Word]) -> dict[Key, Counter[Form]]:
    """How often each content word stands in each of its forms."""
    found: dict[Key, Counter[Form]] = defaultdict(Counter)
    for word in words:
        if word.pos is not None:
            found[word.key][word.tag, word.text.lower()] += 1
    return dict(found)


def names_of(keys: Iterable[Key], forms: Forms) -> dict[str, set[int]]:
    """Which words (as places in `keys`) a text may mean: by lemma or by a form seen, case-folded."""
    found: dict[str, set[int]] = defaultdict(set)
    for place, key in enumerate(keys):
        for text in (key[0], *(text for _, text in forms.get(key, ()))):
            found[text.casefold()].add(place)
    return dict(found)


def stand_in(word: Word, other: Key, forms: Forms, language: Language) -> str:
    """`other` in the form and case that `word` has in its caption (ours, heuristic).

    Of the forms seen in captions, the most frequent one with the same fine tag, one with the same ending first; where
    none was seen, the language's rule.
    """
    seen = forms.get(other, {})
    like = [(text, count) for (tag, text), count in seen.items() if tag == word.tag]
    ending = _ending(word.text, word.lemma)
    same = [(text, count) for text, count in like if ending is not None and _ending(text, other[0]) == ending]
    chosen = same or ([] if word.pos == "adjective" and ending else like)
    if chosen:
        return as_written(min(chosen, key=lambda form: (-form[1], form[0]))[0], word.text)
    return as_written(language.inflected(other[0], word), word.text)


def as_written(text: str, like: str) -> str:
    """A text with the case of another: all capitals, a capital first, or none."""
    if len(like) > 1 and like.isupper():
        return text.upper()
    return text[:1].upper() + text[1:] if like[:1].isupper() else text.lower()


def _ending(text: str, lemma: str) -> str | None:
    """What a form adds to its lemma, or None where it changes more than that."""
    text, lemma = text.lower(), lemma.lower()
    return text[len(lemma) :] if text.startswith(lemma) else None
