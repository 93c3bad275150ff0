"""The truth of the demo's world: whether a caption describes a scene, and how much an edit changed (ours)."""

from __future__ import annotations

import re
from itertools import combinations, permutations

from repair_ray.world.parsing import Description, parse
from repair_ray.world.scene import ATTRIBUTES, Group, Scene, holds

__all__ = ["Description", "caption_difference", "describes", "edit_distance", "parse"]


def describes(caption: str, scene: Scene) -> bool:
    """Whether `caption` is true of `scene`: its phrases can be given to different groups that fit them and stand so.

    A caption need not name everything. "a red circle" says exactly one: it is not true of a group of two. A caption
    that `parse` does not understand describes nothing.
    """
    said = parse(caption)
    if said is None:
        return False
    return any(_fits(said, groups) for groups in permutations(scene.groups, len(said.phrases)))


def _fits(said: Description, groups: tuple[Group, ...]) -> bool:
    if not all(phrase.fits(group) for phrase, group in zip(said.phrases, groups, strict=True)):
        return False
    return all(holds(relation, groups[a], groups[b]) for a, relation, b in said.relations)


def edit_distance(a: Scene, b: Scene) -> int:
    """Count the changes that turn `a` into `b`, under the matching of their groups that needs the fewest.

    One for each attribute that differs, each group added or removed, and each move; two groups that exchange their
    cells count as one move. Jitter and background count nothing.
    """
    small, large = sorted((a.groups, b.groups), key=len)
    best = len(small) + len(large)
    for matched in range(1, len(small) + 1):
        for ours in combinations(small, matched):
            for theirs in permutations(large, matched):
                pairs = list(zip(ours, theirs, strict=True))
                unmatched = len(small) + len(large) - 2 * matched
                best = min(best, unmatched + sum(_attributes_changed(x, y) for x, y in pairs) + _moves(pairs))
    return best


def _attributes_changed(a: Group, b: Group) -> int:
    return sum(getattr(a, name) != getattr(b, name) for name in ATTRIBUTES)


def _moves(pairs: list[tuple[Group, Group]]) -> int:
    moved = [(x.cell, y.cell) for x, y in pairs if x.cell != y.cell]
    exchanges = sum((target, source) in moved for source, target in moved) // 2
    return len(moved) - exchanges


def caption_difference(a: str, b: str) -> int:
    """Count the words that are changed, added or left out between two captions (word-level Levenshtein distance).

    Case and punctuation count nothing.
    """
    first, second = _words(a), _words(b)
    row = list(range(len(second) + 1))
    for i, word in enumerate(first, 1):
        diagonal, row[0] = row[0], i
        for j, other in enumerate(second, 1):
            diagonal, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, diagonal + (word != other))
    return row[-1]


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())
