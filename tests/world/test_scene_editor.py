from __future__ import annotations

import io
import random
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from repair_ray.engines.editors import EditError, ImageEditor
from repair_ray.world.captions import phrase
from repair_ray.world.editor import SceneEditor, edit_scene
from repair_ray.world.generate import random_scene, sibling
from repair_ray.world.render import png_bytes, scene_of
from repair_ray.world.scene import ATTRIBUTES, Group, Scene
from repair_ray.world.truth import describes, edit_distance

CIRCLES = Group("circle", "red", "small", "striped", 2, 0, jitter=1)
SQUARE = Group("square", "blue", "large", "solid", 1, 1, jitter=2)
STAR = Group("star", "green", "large", "dotted", 1, 2, jitter=3)
PAIR = Scene((CIRCLES, SQUARE), background=6)
TRIO = Scene((CIRCLES, SQUARE, STAR), background=6)
REST = "; keep everything else unchanged"


def plain(scene: Scene) -> list[Group]:
    return [replace(group, jitter=0) for group in scene.groups]


def cells_of(png: bytes) -> list[np.ndarray]:
    picture = np.asarray(Image.open(io.BytesIO(png)))
    return [picture[32 * (c // 2) : 32 * (c // 2) + 32, 32 * (c % 2) : 32 * (c % 2) + 32] for c in range(4)]


def untouched(before: bytes, after: bytes) -> list[int]:
    return [c for c, (a, b) in enumerate(zip(cells_of(before), cells_of(after), strict=True)) if np.array_equal(a, b)]


def test_it_is_an_image_editor() -> None:
    editor: ImageEditor = SceneEditor()
    assert editor.name == "scene"


def test_change_takes_what_is_stated_and_keeps_the_rest() -> None:
    before = png_bytes(PAIR)
    after = SceneEditor().edit(before, "change the two red circles to two green circles" + REST, seed=4)
    scene = scene_of(after)
    assert plain(scene) == plain(Scene((replace(CIRCLES, colour="green"), SQUARE)))
    assert scene.groups[1] == SQUARE
    assert scene.groups[0].jitter != CIRCLES.jitter
    assert untouched(before, after) == [1, 2, 3]


@pytest.mark.parametrize(
    ("instruction", "expected"),
    [
        ("change the square to three tiny pink hollow hearts", Group("heart", "pink", "small", "hollow", 3, 1)),
        ("Change the blue square into a blue star.", replace(SQUARE, shape="star")),
        ("replace the blue square with a ring", replace(SQUARE, shape="ring")),
        ("change the large square to small", replace(SQUARE, size="small")),
    ],
)
def test_changes_of_the_square(instruction: str, expected: Group) -> None:
    assert plain(edit_scene(PAIR, instruction, 0)) == [replace(CIRCLES, jitter=0), replace(expected, jitter=0)]


def test_plural_without_a_number_keeps_the_number() -> None:
    assert edit_scene(PAIR, "change the circles to green rings", 0).groups[0].count == 2
    assert edit_scene(PAIR, "change the square to stars", 0).groups[1].count in (2, 3)
    assert edit_scene(PAIR, "change the circles to a circle", 0).groups[0].count == 1


def test_remove() -> None:
    before = png_bytes(TRIO)
    after = SceneEditor().edit(before, "remove the large dotted star" + REST, seed=0)
    assert scene_of(after) == PAIR
    assert untouched(before, after) == [0, 1, 3]


def test_add_uses_a_free_cell_and_draws_the_rest_by_seed() -> None:
    before = png_bytes(PAIR)
    outcomes = set()
    for seed in range(20):
        after = SceneEditor().edit(before, "add a pink heart" + REST, seed)
        *old, new = scene_of(after).groups
        assert old == [CIRCLES, SQUARE]
        assert (new.shape, new.colour, new.count) == ("heart", "pink", 1)
        assert new.cell in (2, 3)
        assert set(untouched(before, after)) == {0, 1, 2, 3} - {new.cell}
        outcomes.add((new.cell, new.size, new.texture))
    assert len(outcomes) > 4


def test_add_beside_a_group() -> None:
    for seed in range(5):
        scene = edit_scene(PAIR, "add two pink hearts below the square", seed)
        assert describes("two pink hearts below a blue square", scene)
    with pytest.raises(EditError, match="no cell is free"):
        edit_scene(PAIR, "add a heart above the square", 0)


@pytest.mark.parametrize(
    ("scene", "instruction", "cells"),
    [
        # the free cell on the right side
        (Scene((CIRCLES, STAR)), "move the star right of the two circles", [0, 3]),
        # the circles cannot be right of the last column, so the two change places
        (PAIR, "move the circles right of the square", [1, 0]),
        # already so
        (PAIR, "move the two circles to the left of the square", [0, 1]),
        # the free cell, though below asks for no column
        (PAIR, "move the square below the circles", [0, 3]),
        # the star alone cannot: the upper row must be left by the square
        (TRIO, "move the star above the square", [0, 3, 1]),
        (TRIO, "move the square below the star", [0, 3, 1]),
    ],
)
def test_moves_are_minimal(scene: Scene, instruction: str, cells: list[int]) -> None:
    moved = edit_scene(scene, instruction + REST, 0)
    assert [g.attributes for g in moved.groups] == [g.attributes for g in scene.groups]
    _, _, rest = instruction.partition("move ")
    assert describes(rest, moved)
    assert [group.cell for group in moved.groups] == cells


def test_move_leaves_the_other_cells_alone() -> None:
    before = png_bytes(PAIR)
    after = SceneEditor().edit(before, "move the square below the two circles", 0)
    assert untouched(before, after) == [0, 2]


def test_moves_after_each_other_all_hold() -> None:
    scene = edit_scene(TRIO, "move the star above the square; move the star left of the circles", 0)
    assert describes("a star above a square", scene)
    assert describes("a star left of two circles", scene)
    with pytest.raises(EditError, match="no layout"):
        edit_scene(TRIO, "move the star above the square; move the square above the star", 0)


def test_steps_do_not_run_into_each_other() -> None:
    scene = edit_scene(
        Scene((Group("ring", "red", "small", "solid", 1, 0), Group("ring", "blue", "large", "solid", 1, 1))),
        "change the red ring to a blue ring; change the blue ring to a red ring" + REST,
        0,
    )
    assert [(g.colour, g.size) for g in scene.groups] == [("blue", "small"), ("red", "large")]


def test_later_steps_see_earlier_ones() -> None:
    scene = edit_scene(PAIR, "remove the square and add a pink heart, then move the heart above the circles", 3)
    assert describes("a pink heart above two red circles", scene)
    assert len(scene.groups) == 2
    scene = edit_scene(PAIR, "change the circles to two green circles; move the red circles right of the square", 0)
    assert describes("two green circles right of a blue square", scene)
    assert len(edit_scene(TRIO, "add a pink heart; remove the star", 0).groups) == 3


def test_several_that_fit_give_the_first() -> None:
    twins = Scene((replace(SQUARE, cell=2, jitter=5), SQUARE))
    assert [g.colour for g in edit_scene(twins, "change the square to a red square", 0).groups] == ["red", "blue"]


@pytest.mark.parametrize(
    ("instruction", "message"),
    [
        ("remove the pink heart", "no group with shape heart, colour pink, count 1"),
        ("change the red circle to a blue circle", "no group with shape circle, colour red, count 1"),
        ("move the square above the square", "besides the one"),
        ("add a pink heart", "would hold 4 groups"),
        ("add a pink heart; add a ring", "no cell is free"),
        ("remove the square; remove the star; remove the circles", "would hold 0 groups"),
        ("remove the square; move the star below the square", "no group with shape square"),
        ("change the square to a dog", "cannot follow 'change the square to a dog'"),
        ("add", "cannot follow 'add'"),
        ("move the star next to the square", "cannot follow"),
        ("move the star", "cannot follow"),
        ("make it nicer", "cannot follow 'make it nicer'"),
        ("remove the star; paint it green", "cannot follow"),
        ("", "asks for no change"),
        ("keep everything else unchanged", "asks for no change"),
    ],
)
def test_what_cannot_be_followed_is_an_error(instruction: str, message: str) -> None:
    with pytest.raises(EditError, match=message):
        SceneEditor().edit(png_bytes(TRIO), instruction, 0)


def test_picture_without_a_scene_is_an_error() -> None:
    buffer = io.BytesIO()
    Image.new("RGB", (8, 8)).save(buffer, "PNG")
    with pytest.raises(EditError, match="carries no scene"):
        SceneEditor().edit(buffer.getvalue(), "add a star", 0)


def test_same_seed_same_picture() -> None:
    png = png_bytes(PAIR)
    editor = SceneEditor()
    assert editor.edit(png, "add a heart", 5) == editor.edit(png, "add a heart", 5)
    assert len({editor.edit(png, "change the square to a ring", seed) for seed in range(4)}) == 4


def test_every_near_miss_can_be_repaired_in_words() -> None:
    """From a sibling back to its base, one step: the outcome is the base but for jitter and absolute place."""
    rng = random.Random(8)
    repaired = 0
    for _ in range(300):
        base = random_scene(rng)
        near = sibling(base, rng)
        pairs = list(zip(near.groups, base.groups, strict=True))
        if any(a.cell != b.cell for a, b in pairs):
            continue
        ((wrong, right),) = [(a, b) for a, b in pairs if a.attributes != b.attributes]
        name = phrase(wrong).removeprefix("an ").removeprefix("a ")
        after = edit_scene(near, f"change the {name} to {phrase(right)}", 0)
        assert edit_distance(after, base) == 0
        assert sum(getattr(wrong, name) != getattr(right, name) for name in ATTRIBUTES) == 1
        repaired += 1
    assert repaired > 200
