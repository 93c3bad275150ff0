"""The demo's scenes: one to three groups of equal shapes on a 2x2 layout, and the words for what they can be (ours).

A scene is plain data. `repair_ray.world.render` draws it, `repair_ray.world.captions` describes it, and
`repair_ray.world.truth` says whether a caption describes it.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

SHAPES = ("circle", "square", "triangle", "star", "diamond", "cross", "heart", "ring")
COLOURS = ("red", "green", "blue", "yellow", "purple", "orange", "black", "pink")
SIZES = ("small", "large")
TEXTURES = ("solid", "striped", "dotted", "hollow")
COUNTS = (1, 2, 3)
CELLS = (0, 1, 2, 3)  # row-major: 0 1 over 2 3
RELATIONS = ("left of", "right of", "above", "below")
ATTRIBUTES = ("shape", "colour", "size", "texture", "count")
VALUES: dict[str, tuple[Any, ...]] = {
    "shape": SHAPES,
    "colour": COLOURS,
    "size": SIZES,
    "texture": TEXTURES,
    "count": COUNTS,
    "cell": CELLS,
}
MAX_GROUPS = 3


def derived_seed(*parts: object) -> int:
    """Return a seed in [0, 2**32) that depends on `parts` alone: equal in every process, unlike `hash`."""
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=4).digest()
    return int.from_bytes(digest, "big")


@dataclass(frozen=True)
class Group:
    """`count` equal shapes in one cell. `jitter` seeds their exact place and shade, which no caption mentions.

    Raises ValueError when a value is not in the vocabulary.
    """

    shape: str
    colour: str
    size: str
    texture: str
    count: int
    cell: int
    jitter: int = 0

    def __post_init__(self) -> None:
        for name, allowed in VALUES.items():
            if getattr(self, name) not in allowed:
                raise ValueError(f"group has {name} {getattr(self, name)!r}; use one of {', '.join(map(str, allowed))}")

    @property
    def row(self) -> int:
        """0 for the upper cells, 1 for the lower ones."""
        return self.cell // 2

    @property
    def column(self) -> int:
        """0 for the left cells, 1 for the right ones."""
        return self.cell % 2

    @property
    def attributes(self) -> tuple[str, str, str, str, int]:
        """Shape, colour, size, texture and count, in the order of `ATTRIBUTES`."""
        return self.shape, self.colour, self.size, self.texture, self.count


@dataclass(frozen=True)
class Scene:
    """One to three groups in distinct cells, and the seed of the background.

    Raises ValueError when there are too few or too many groups or two of them share a cell.
    """

    groups: tuple[Group, ...]
    background: int = 0

    def __post_init__(self) -> None:
        if not 1 <= len(self.groups) <= MAX_GROUPS:
            raise ValueError(f"a scene holds 1 to {MAX_GROUPS} groups, not {len(self.groups)}")
        cells = [group.cell for group in self.groups]
        if len(set(cells)) < len(cells):
            raise ValueError(f"groups share a cell: cells are {cells}; give each group its own")

    def to_json(self) -> str:
        """Return the scene as compact ASCII JSON; `from_json` reads it back."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @staticmethod
    def from_json(text: str) -> Scene:
        """Read what `to_json` wrote. Raises ValueError when it is not a scene."""
        try:
            record = json.loads(text)
            groups = tuple(_group(item) for item in record["groups"])
            return Scene(groups, int(record["background"]))
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"not the JSON of a scene: {error}") from error


def _group(record: Mapping[str, Any]) -> Group:
    return Group(**record)


def holds(relation: str, a: Group, b: Group) -> bool:
    """Whether `a` is left of / right of / above / below `b`: its column or row is strictly on that side."""
    if relation == "left of":
        return a.column < b.column
    if relation == "right of":
        return a.column > b.column
    if relation == "above":
        return a.row < b.row
    if relation == "below":
        return a.row > b.row
    raise ValueError(f"unknown relation {relation!r}; use one of {', '.join(RELATIONS)}")


def relations(a: Group, b: Group) -> tuple[str, ...]:
    """Return what holds between `a` and `b`: one relation in a shared row or column, two on a diagonal."""
    return tuple(relation for relation in RELATIONS if holds(relation, a, b))


def content(scene: Scene) -> tuple[tuple[Any, ...], ...]:
    """Return what captions can tell about a scene: groups in no order, without jitter, background or absolute place.

    Two scenes with equal content satisfy exactly the same captions: a row or column that is used alone has no name,
    so a pair side by side is the same above and below.
    """
    rows = sorted({group.row for group in scene.groups})
    columns = sorted({group.column for group in scene.groups})
    return tuple(sorted((*g.attributes, rows.index(g.row), columns.index(g.column)) for g in scene.groups))


def random_group(rng: random.Random, cell: int, **fixed: Any) -> Group:
    """Draw a group for `cell`; `fixed` attributes are kept, the others are drawn."""
    drawn = {name: rng.choice(VALUES[name]) for name in ATTRIBUTES}
    return Group(**{**drawn, **fixed}, cell=cell, jitter=rng.getrandbits(32))
