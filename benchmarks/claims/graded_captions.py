"""Sentences to train on, and pairs of sentences with a graded truth that no encoder has a part in.

`world`: captions of the demo's scenes. Two captions are as similar as the share of facts that they have in common, by
the world's own grammar: that there is a circle, that the circle is red, that the circle is left of the star. Synonyms,
another order, and "left of" said as "right of" from the other side count as what they mean.

`emoji`: names of emoji out of Unicode CLDR. Two names are as similar as the share of their CLDR keywords in common,
plus one where both are in the same CLDR sub-group, plus one where they are in the same group. People made all three,
and no emoji that is measured is trained on. Keywords repeat words of names, so words in common say much of this truth.

Pairs are drawn evenly over ten steps of the truth (ours).
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, permutations
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from repair_ray.data.sts import SentencePair
from repair_ray.data.text import text_key
from repair_ray.world.captions import captions
from repair_ray.world.generate import make_scenes, random_scene, sibling
from repair_ray.world.parsing import Description, parse
from repair_ray.world.scene import content, derived_seed

STEPS = 10
OPPOSITE = {"left of": "right of", "right of": "left of", "above": "below", "below": "above"}
PAIRS = 1000
TRIES = 30


@dataclass(frozen=True)
class Graded:
    """Texts to train on with the groups of those that say the same, and scored pairs to tune on and to measure on."""

    name: str
    texts: list[str]
    groups: list[str]
    validation: list[SentencePair]
    test: list[SentencePair]


def world(seed: int, scenes: int = 1000, pairs: int = PAIRS) -> Graded:
    """Captions of `scenes` scenes, and pairs of captions of other scenes: the same one's, a sibling's, any other's."""
    seen: set[tuple[Any, ...]] = set()
    drawn = make_scenes(scenes, derived_seed("texts", seed), 3, seen)
    texts = [(caption, str(n)) for n, scene in enumerate(drawn) for caption in captions(scene, seed)]
    parts = [_world_pairs(derived_seed("pairs", split, seed), seen, pairs) for split in ("validation", "test")]
    return Graded("world", [text for text, _ in texts], [group for _, group in texts], *parts)


def facts_in_common(one: Description, other: Description) -> float:
    """Dice coefficient of the facts of two captions, 0 to 1, under the best matching of their phrases.

    A phrase is one fact for its shape and one for each further attribute, a relation is one. An attribute is in common
    where the shape is too: a red circle and a red square share nothing.
    """
    total = _facts(one) + _facts(other)
    if len(one.phrases) > len(other.phrases):
        one, other = other, one
    best = 0
    for places in permutations(range(len(other.phrases)), len(one.phrases)):
        same = [phrase.shape == other.phrases[place].shape for phrase, place in zip(one.phrases, places, strict=True)]
        common = 0
        for phrase, place, fits in zip(one.phrases, places, same, strict=True):
            there = other.phrases[place].stated()
            common += fits and sum(there.get(name) == value for name, value in phrase.stated().items())
        for a, relation, b in one.relations:
            turned = places[b], OPPOSITE[relation], places[a]
            there_too = (places[a], relation, places[b]) in other.relations or turned in other.relations
            common += same[a] and same[b] and there_too
        best = max(best, common)
    return 2 * best / total


def _facts(said: Description) -> int:
    return sum(len(phrase.stated()) for phrase in said.phrases) + len(said.relations)


def _world_pairs(seed: int, seen: set[tuple[Any, ...]], number: int) -> list[SentencePair]:
    rng = random.Random(seed)

    def draw() -> Iterator[tuple[str, str, float]]:
        before = random_scene(rng)
        while True:
            scene = random_scene(rng)
            near = sibling(scene, rng)
            if content(scene) in seen or content(near) in seen:
                continue
            own = captions(scene, seed)
            for others in (own, captions(near, seed), captions(before, seed)):
                first, second = rng.choice(own), rng.choice(others)
                said = parse(first), parse(second)
                if first != second and said[0] is not None and said[1] is not None:
                    yield first, second, facts_in_common(said[0], said[1])
            before = scene

    return _even(draw(), number, top=1.0)


def emoji(folder: Path, seed: int, pairs: int = PAIRS) -> Graded:
    """Names and keywords of the emoji of `folder/train.parquet`, and pairs of names of the other two splits."""
    texts = []
    for row in _rows(folder / "train.parquet"):
        texts += [(caption, row["codepoints"]) for caption in row["captions"]]
    once = {text_key(text): (text, group) for text, group in texts}
    parts = [
        _emoji_pairs(_rows(folder / f"{split}.parquet"), derived_seed("emoji", split, seed), pairs)
        for split in ("validation", "test")
    ]
    return Graded("emoji", [text for text, _ in once.values()], [group for _, group in once.values()], *parts)


def emoji_truth(one: dict[str, Any], other: dict[str, Any]) -> float:
    """Similarity of two emoji by CLDR: keywords in common (Jaccard), and the same sub-group, and the same group."""
    first, second = keywords(one), keywords(other)
    shared = len(first & second) / len(first | second) if first | second else 0.0
    same = (one["group"], one["subgroup"]) == (other["group"], other["subgroup"])
    return shared + same + (one["group"] == other["group"])


def keywords(row: dict[str, Any]) -> set[str]:
    """CLDR's keywords: what follows the name in the longest caption, `name: keyword, keyword`."""
    name, listed = row["captions"][0], row["captions"][-1]
    return {word.strip().casefold() for word in listed.removeprefix(f"{name}:").split(",") if word.strip()}


def _rows(file: Path) -> list[dict[str, Any]]:
    """One row an emoji: both vendors have the same texts."""
    table = pq.read_table(file, columns=["codepoints", "group", "subgroup", "captions"])
    return list({row["codepoints"]: row for row in table.to_pylist()}.values())


def _emoji_pairs(rows: Sequence[dict[str, Any]], seed: int, number: int) -> list[SentencePair]:
    rng = random.Random(seed)
    places: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in rows:
        for key in ((), (row["group"],), (row["group"], row["subgroup"])):
            places.setdefault(key, []).append(row)

    def draw() -> Iterator[tuple[str, str, float]]:
        while True:
            one = rng.choice(rows)
            for key in ((), (one["group"],), (one["group"], one["subgroup"])):
                other = rng.choice(places[key])
                if other is not one:
                    yield one["captions"][0], other["captions"][0], emoji_truth(one, other)

    return _even(draw(), number, top=3.0)


def _even(drawn: Iterator[tuple[str, str, float]], number: int, top: float) -> list[SentencePair]:
    """`number` different pairs, of each tenth of the truth's range an equal part, as far as so many can be found."""
    wanted = number // STEPS
    steps: list[dict[tuple[str, str], float]] = [{} for _ in range(STEPS)]
    for first, second, score in islice(drawn, number * TRIES):
        if all(len(step) == wanted for step in steps):
            break
        step = steps[min(STEPS - 1, int(score / top * STEPS))]
        if len(step) < wanted and (second, first) not in step:
            step[first, second] = score
    return [
        SentencePair(first, second, score, f"step {n}")
        for n, step in enumerate(steps)
        for (first, second), score in step.items()
    ]
