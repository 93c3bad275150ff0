from __future__ import annotations

import hashlib
import io
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from repair_ray.world.captions import captions
from repair_ray.world.render import png_bytes, render, scene_of
from repair_ray.world.scene import COLOURS, SHAPES, SIZES, TEXTURES, Group, Scene, content, holds, relations

CIRCLE = Group("circle", "red", "small", "striped", 2, 0, jitter=11)
SQUARE = Group("square", "blue", "large", "solid", 1, 3, jitter=12)


def pixels(scene: Scene) -> np.ndarray:
    return np.asarray(render(scene)).astype(int)


def test_json_comes_back_equal() -> None:
    scene = Scene((CIRCLE, SQUARE), background=5)
    assert Scene.from_json(scene.to_json()) == scene


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"groups":[{"shape":"circle"}],"background":0}', '{"groups":3}'])
def test_what_is_no_scene_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not the JSON of a scene"):
        Scene.from_json(text)


def test_values_outside_the_vocabulary_are_refused() -> None:
    with pytest.raises(ValueError, match="colour 'mauve'; use one of red"):
        replace(CIRCLE, colour="mauve")
    with pytest.raises(ValueError, match="share a cell"):
        Scene((CIRCLE, replace(SQUARE, cell=0)))
    with pytest.raises(ValueError, match="1 to 3 groups, not 0"):
        Scene(())
    with pytest.raises(ValueError, match="unknown relation 'beside'"):
        holds("beside", CIRCLE, SQUARE)


def test_relations_follow_from_cells() -> None:
    at = [replace(CIRCLE, cell=cell) for cell in range(4)]
    assert relations(at[0], at[1]) == ("left of",)
    assert relations(at[2], at[0]) == ("below",)
    assert relations(at[0], at[3]) == ("left of", "above")
    assert relations(at[1], at[2]) == ("right of", "above")


def test_content_forgets_what_no_caption_can_tell() -> None:
    upper = Scene((replace(CIRCLE, cell=0), replace(SQUARE, cell=1)), background=1)
    lower = Scene((replace(SQUARE, cell=3, jitter=9), replace(CIRCLE, cell=2)), background=2)
    diagonal = Scene((replace(CIRCLE, cell=0), SQUARE))
    mirrored = Scene((replace(CIRCLE, cell=1), replace(SQUARE, cell=0)))
    assert content(upper) == content(lower)
    assert len({content(upper), content(diagonal), content(mirrored)}) == 3


def test_picture_is_64_by_64_rgb_and_carries_its_scene() -> None:
    scene = Scene((CIRCLE, SQUARE), background=7)
    png = png_bytes(scene)
    image = Image.open(io.BytesIO(png))
    assert (image.format, image.mode, image.size) == ("PNG", "RGB", (64, 64))
    assert scene_of(png) == scene
    assert np.array_equal(np.asarray(image), np.asarray(render(scene)))


def test_picture_without_a_scene_is_refused() -> None:
    buffer = io.BytesIO()
    Image.new("RGB", (64, 64)).save(buffer, "PNG")
    with pytest.raises(ValueError, match=r"carries no scene .*repair_ray\.scene"):
        scene_of(buffer.getvalue())
    for broken in (b"", b"no picture", buffer.getvalue()[:20]):
        with pytest.raises(ValueError, match="not a readable picture"):
            scene_of(broken)


def test_group_stays_inside_its_cell() -> None:
    """Whatever the group, the other three cells hold the bare background."""
    bare = pixels(Scene((Group("circle", "red", "small", "solid", 1, 3),), background=3))
    for index, (shape, size, texture) in enumerate((h, s, t) for h in SHAPES for s in SIZES for t in TEXTURES):
        for count in (1, 2, 3):
            scene = Scene((Group(shape, "black", size, texture, count, 0, jitter=index),), background=3)
            drawn = pixels(scene)
            assert np.array_equal(drawn[:, 32:][:32], bare[:32, 32:])
            assert np.array_equal(drawn[32:, :32], bare[32:, :32])
            assert (drawn[:32, :32] < 150).all(axis=2).any(), scene


def test_every_attribute_changes_the_pixels() -> None:
    base = Group("circle", "red", "small", "solid", 1, 0, jitter=4)
    variants = [base]
    variants += [replace(base, shape=shape) for shape in SHAPES[1:]]
    variants += [replace(base, colour=colour) for colour in COLOURS[1:]]
    variants += [replace(base, texture=texture) for texture in TEXTURES[1:]]
    variants += [replace(base, size="large"), replace(base, count=2), replace(base, count=3), replace(base, cell=2)]
    pictures = [pixels(Scene((group,), background=3)) for group in variants]
    for i, a in enumerate(pictures):
        for b in pictures[:i]:
            assert np.abs(a - b).max() > 60


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("shape", SHAPES)
def test_large_covers_more_than_twice_the_area_of_small(shape: str, count: int) -> None:
    def ink(size: str) -> float:
        picture = pixels(Scene((Group(shape, "black", size, "solid", count, 0, jitter=4),), background=3))
        return float((picture[:32, :32] < 128).all(axis=2).sum())

    assert ink("large") > 2 * ink("small")


def test_pictures_are_equal_in_another_process() -> None:
    scene = Scene((CIRCLE, SQUARE), background=7)
    code = (
        "import hashlib, sys; from repair_ray.world.render import png_bytes; from repair_ray.world.scene import Scene\n"
        "from repair_ray.world.captions import captions\n"
        "scene = Scene.from_json(sys.argv[1]); text = '|'.join(captions(scene, 3)).encode()\n"
        "print(hashlib.sha256(png_bytes(scene) + text).hexdigest())"
    )
    here = hashlib.sha256(png_bytes(scene) + "|".join(captions(scene, 3)).encode()).hexdigest()
    for _ in range(2):  # each with its own hash seed
        run = subprocess.run([sys.executable, "-c", code, scene.to_json()], capture_output=True, check=True, text=True)
        assert run.stdout.strip() == here
