"""Captions of scenes: true ones of varying completeness, in the world's small grammar (ours).

A phrase is `count [size] [colour] [texture] shape`. Two phrases next to each other are joined by a relation, which then
holds between exactly these two, or by a word that claims no side ("and", "with", "next to", a comma).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Sequence

from repair_ray.world.scene import Group, Scene, derived_seed, relations

COUNT_WORDS: dict[int, tuple[str, ...]] = {1: ("a", "one"), 2: ("two",), 3: ("three",)}
SIZE_WORDS: dict[str, tuple[str, ...]] = {"small": ("small", "little", "tiny"), "large": ("large", "big")}
TEXTURE_WORDS: dict[str, tuple[str, ...]] = {
    "solid": ("solid", "plain"),
    "striped": ("striped",),
    "dotted": ("dotted",),
    "hollow": ("hollow",),
}
RELATION_WORDS: dict[str, tuple[str, ...]] = {
    "left of": ("to the left of", "left of"),
    "right of": ("to the right of", "right of"),
    "above": ("above", "over"),
    "below": ("below", "under", "beneath"),
}
_ALL = frozenset({"size", "colour", "texture"})
_TRIES = 200


def plural(shape: str) -> str:
    """Return the plural of a shape's name."""
    return shape + ("es" if shape.endswith("s") else "s")


def phrase(group: Group, kept: Collection[str] = _ALL, rng: random.Random | None = None) -> str:
    """Name a group with its count, its shape, and those of size, colour and texture that are in `kept`.

    Without `rng` the first of all synonyms is used.
    """

    def pick(words: Sequence[str]) -> str:
        return rng.choice(words) if rng else words[0]

    words = [pick(SIZE_WORDS[group.size])] if "size" in kept else []
    words += [group.colour] if "colour" in kept else []
    words += [pick(TEXTURE_WORDS[group.texture])] if "texture" in kept else []
    words += [group.shape if group.count == 1 else plural(group.shape)]
    number = rng.choices(COUNT_WORDS[1], (4, 1))[0] if rng and group.count == 1 else COUNT_WORDS[group.count][0]
    if number == "a" and words[0][0] in "aeiou":
        number = "an"
    return " ".join([number, *words])


def captions(scene: Scene, seed: int, n: int = 5) -> list[str]:
    """Describe `scene` in `n` different true captions of at most 24 words.

    The first names every group with all of its attributes and a relation between each two neighbours in the sentence;
    the second leaves out one kind of attribute; the others leave out the relations, single attributes, all attributes
    but the colour, or a whole group. Raises ValueError when the scene does not give `n` different captions.
    """
    rng = random.Random(derived_seed("captions", seed, scene.to_json()))
    extra = [_without_sides, _thinned, rng.choice((_terse, _partial))]
    rng.shuffle(extra)
    kinds = [_complete, _one_kind_dropped, *extra]
    found: list[str] = []
    for attempt in range(_TRIES):
        if len(found) >= n:
            break
        # A kind that only repeats itself is passed over, so that small scenes get their captions too.
        kind = kinds[(len(found) + attempt // 20) % len(kinds)] if found else _complete
        caption = kind(scene, rng)
        if caption not in found:
            found.append(caption)
    if len(found) < n:
        raise ValueError(f"scene gives {len(found)} different captions, {n} were asked for; ask for fewer")
    return found


def _complete(scene: Scene, rng: random.Random) -> str:
    return _sentence(_shuffled(scene, rng), lambda: _ALL, True, rng)


def _one_kind_dropped(scene: Scene, rng: random.Random) -> str:
    kept = _ALL - {rng.choice(("size", "texture"))}
    return _sentence(_shuffled(scene, rng), lambda: kept, True, rng)


def _without_sides(scene: Scene, rng: random.Random) -> str:
    return _sentence(_shuffled(scene, rng), lambda: _ALL, False, rng)


def _thinned(scene: Scene, rng: random.Random) -> str:
    kinds, weights = ("none", "size", "texture", "colour"), (4, 2, 2, 1)
    return _sentence(_shuffled(scene, rng), lambda: _ALL - {rng.choices(kinds, weights)[0]}, True, rng)


def _terse(scene: Scene, rng: random.Random) -> str:
    return _sentence(_shuffled(scene, rng), lambda: {"colour"}, True, rng)


def _partial(scene: Scene, rng: random.Random) -> str:
    groups = _shuffled(scene, rng)
    return _sentence(groups[: max(1, len(groups) - 1)], lambda: _ALL, True, rng)


def _shuffled(scene: Scene, rng: random.Random) -> list[Group]:
    return rng.sample(scene.groups, len(scene.groups))


def _sentence(groups: list[Group], kept: Callable[[], Collection[str]], sides: bool, rng: random.Random) -> str:
    text = phrase(groups[0], kept(), rng)
    for position in range(1, len(groups)):
        a, b = groups[position - 1], groups[position]
        if sides:
            join = f" {rng.choice(RELATION_WORDS[rng.choice(relations(a, b))])} "
        elif position < len(groups) - 1:
            join = rng.choice((", ", " with "))
        else:
            join = rng.choice((" and ", " with ", " next to ")) if len(groups) == 2 else " and "
        text += join + phrase(b, kept(), rng)
    return text
