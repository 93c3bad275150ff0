"""The demo's image editor: it applies an instruction to the scene that a picture carries, and draws it again (ours).

It sees the picture and the instruction's text alone, never a query, a caption or the wanted outcome.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import combinations, permutations
from typing import Any

from repair_ray.engines.editors import EditError
from repair_ray.world.instructions import Add, Change, Move, Remove, Step, parse_instruction
from repair_ray.world.parsing import Phrase
from repair_ray.world.render import png_bytes, scene_of
from repair_ray.world.scene import CELLS, MAX_GROUPS, Group, Scene, derived_seed, holds, random_group, relations


class SceneEditor:
    """Implements `repair_ray.engines.editors.ImageEditor` for pictures of the world."""

    name = "scene"

    def edit(self, image: bytes, instruction: str, seed: int) -> bytes:
        """Return the edited picture as PNG; the pixels of cells that no step touches stay as they are.

        Raises EditError when the picture carries no scene or the instruction cannot be followed on it.
        """
        try:
            scene = scene_of(image)
        except ValueError as error:
            raise EditError(str(error)) from error
        return png_bytes(edit_scene(scene, instruction, seed))


def edit_scene(scene: Scene, instruction: str, seed: int) -> Scene:
    """Apply the steps of `instruction` in their order. Raises EditError when one of them cannot be followed.

    "the X" is the first group that X fits, by the scene as it was before the instruction if possible, so that the
    steps of "change A to B; change B to A" do not run into each other. `seed` draws what an added group leaves open,
    and the jitter of added, changed and moved groups.
    """
    draft = _Draft(scene, seed)
    for step in parse_instruction(instruction):
        draft.apply(step)
    return draft.scene()


@dataclass
class _Slot:
    """One group's fate: as it was (None if added), as it is (None if removed), and whether a step has used it."""

    before: Group | None
    now: Group | None
    used: bool = False


class _Draft:
    def __init__(self, scene: Scene, seed: int) -> None:
        self._source = scene
        self._seed = seed
        self._rng = random.Random(derived_seed("edit", seed, scene.to_json()))
        self._slots = [_Slot(group, group) for group in scene.groups]
        self._placed: list[tuple[_Slot, str, _Slot]] = []  # relations that earlier moves have made true

    def apply(self, step: Step) -> None:
        if isinstance(step, Change):
            slot = self._target(step.old)
            slot.now, slot.used = self._changed(_group(slot), step.new), True
        elif isinstance(step, Remove):
            slot = self._target(step.old)
            slot.now, slot.used = None, True
        elif isinstance(step, Add):
            self._add(step)
        else:
            self._move(step)

    def scene(self) -> Scene:
        """Return the outcome, with new jitter for each group that is not as it was."""
        groups = []
        for index, slot in enumerate(self._slots):
            if slot.now is not None:
                jitter = derived_seed("jitter", self._seed, index, slot.now.jitter)
                groups.append(slot.now if slot.now == slot.before else replace(slot.now, jitter=jitter))
        if not 1 <= len(groups) <= MAX_GROUPS:
            raise EditError(f"the edited scene would hold {len(groups)} groups; a scene holds 1 to {MAX_GROUPS}")
        return Scene(tuple(groups), self._source.background)

    def _changed(self, group: Group, new: Phrase) -> Group:
        stated: dict[str, Any] = new.stated()
        if new.several and group.count < 2:
            stated["count"] = self._rng.choice((2, 3))
        return replace(group, **stated)

    def _add(self, step: Add) -> None:
        anchor = self._named(step.anchor) if step.anchor else None
        free = [cell for cell in CELLS if cell not in {_group(slot).cell for slot in self._present()}]
        stated: dict[str, Any] = {"count": self._rng.choice((2, 3)) if step.new.several else 1, **step.new.stated()}
        new = random_group(self._rng, CELLS[0], **stated)
        cells = [
            cell
            for cell in free
            if anchor is None or holds(str(step.relation), replace(new, cell=cell), _group(anchor))
        ]
        if not cells:
            raise EditError("no cell is free for the group to add" + (f" {step.relation} the other" if anchor else ""))
        slot = _Slot(None, replace(new, cell=self._rng.choice(cells)))
        self._slots.append(slot)
        if anchor is not None:
            self._placed.append((slot, str(step.relation), anchor))

    def _move(self, step: Move) -> None:
        anchor = self._named(step.anchor)
        what = self._named(step.what, but=anchor)
        wanted = [*self._placed, (what, step.relation, anchor)]
        slots = self._present()
        layouts = []
        for cells in permutations(CELLS, len(slots)):
            moved = [replace(_group(slot), cell=cell) for slot, cell in zip(slots, cells, strict=True)]
            layout = {id(slot): group for slot, group in zip(slots, moved, strict=True)}
            if all(holds(relation, layout[id(a)], layout[id(b)]) for a, relation, b in wanted if self._has(a, b)):
                layouts.append((self._disruption(slots, moved, what), moved))
        if not layouts:
            raise EditError(f"no layout has the group {step.relation} the other along with the steps before")
        _, best = min(layouts, key=lambda layout: layout[0])
        for slot, group in zip(slots, best, strict=True):
            slot.now = group
        self._placed = wanted

    def _disruption(self, slots: list[_Slot], moved: list[Group], what: _Slot) -> tuple[int, ...]:
        """What a layout costs: other groups that move, then distance, then relations that change; ties by cell."""
        now = [_group(slot) for slot in slots]
        others = sum(a.cell != b.cell for slot, a, b in zip(slots, now, moved, strict=True) if slot is not what)
        distance = sum(abs(a.row - b.row) + abs(a.column - b.column) for a, b in zip(now, moved, strict=True))
        pairs = combinations(range(len(now)), 2)
        changed = sum(relations(now[i], now[j]) != relations(moved[i], moved[j]) for i, j in pairs)
        return others, distance, changed, *(group.cell for group in moved)

    def _present(self) -> list[_Slot]:
        return [slot for slot in self._slots if slot.now is not None]

    def _has(self, *slots: _Slot) -> bool:
        return all(slot.now is not None for slot in slots)

    def _target(self, phrase: Phrase) -> _Slot:
        """The group that a change or removal names: one as it was that no step has used yet, else one as it is."""
        return self._first(
            phrase,
            None,
            lambda slot: not slot.used and _fits(phrase, slot.before),
            lambda slot: _fits(phrase, slot.now),
            lambda slot: _fits(phrase, slot.before),
        )

    def _named(self, phrase: Phrase, but: _Slot | None = None) -> _Slot:
        """The group that a place refers to: one as it is, else one as it was."""
        return self._first(phrase, but, lambda slot: _fits(phrase, slot.now), lambda slot: _fits(phrase, slot.before))

    def _first(self, phrase: Phrase, but: _Slot | None, *tests: Callable[[_Slot], bool]) -> _Slot:
        for test in tests:
            for slot in self._present():
                if slot is not but and test(slot):
                    return slot
        stated = ", ".join(f"{name} {value}" for name, value in phrase.stated().items())
        other = " besides the one it is to be placed by" if but else ""
        raise EditError(f"the scene has no group with {stated or 'more than one shape'}{other}")


def _fits(phrase: Phrase, group: Group | None) -> bool:
    return group is not None and phrase.fits(group)


def _group(slot: _Slot) -> Group:
    if slot.now is None:
        raise EditError("the group was removed by an earlier step")
    return slot.now
