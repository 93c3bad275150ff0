"""The negatives of one item: of each of its captions, held against all that is known to be true of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from repair_ray.engines.san.substitute import Made, Truth, substitute, swap
from repair_ray.engines.san.vocabulary import Forms
from repair_ray.engines.words import Key, Language


def negatives_of(
    captions: Sequence[str],
    seeds: Sequence[str],
    others: Sequence[str],
    language: Language,
    alike: Mapping[Key, Sequence[Key]] | None,
    forms: Forms,
    *,
    n_hard: int,
    n_swap: int,
) -> list[Made]:
    """What `substitute` makes of each caption; `swap`, where `alike` is None.

    Args:
        seeds: what each caption's draw depends on.
        others: captions of other items of the group, which are true too.
    """
    words = [language.words(text) for text in captions]
    held = [word for found in words for word in found]
    held += [word for text in others for word in language.words(text)]
    truth = Truth.of([*captions, *others], held)
    if alike is None:
        return [
            swap(text, found, language, truth, n_hard=n_hard, seed=seed)
            for text, found, seed in zip(captions, words, seeds, strict=True)
        ]
    return [
        substitute(text, found, alike, forms, language, truth, n_hard=n_hard, n_swap=n_swap, seed=seed)
        for text, found, seed in zip(captions, words, seeds, strict=True)
    ]
