"""Draws scenes: 64x64 RGB pictures, anti-aliased, each cell independent of the others (ours).

A group's pixels depend on the group alone and stay inside its cell, so an edit of one group leaves the pixels of all
other cells as they were.
"""

from __future__ import annotations

import io
import math
import random
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFilter, ImageOps, PngImagePlugin

from repair_ray.world.scene import Group, Scene

CANVAS = 64
CELL = 32
SCENE_KEY = "repair_ray.scene"
_OVERSAMPLING = 4
_MARGIN = 0.5  # pixels kept free at the edge of a cell
_MAX_SHIFT = 4.0
_PALE = 0.3  # coverage between stripes and dots, so that the shape stays legible

_RGB = {
    "red": (214, 40, 40),
    "green": (30, 150, 60),
    "blue": (36, 84, 214),
    "yellow": (232, 196, 0),
    "purple": (118, 44, 160),
    "orange": (245, 130, 20),
    "black": (20, 20, 24),
    "pink": (248, 132, 190),
}
# Radius in pixels by size, for one, two and three shapes: every small one is clearly smaller than every large one.
_RADIUS = {"small": (5.5, 4.5, 4.5), "large": (12.0, 7.0, 7.0)}
# Centres relative to the middle of the cell: alone, side by side, in a triangle.
_CENTRES = {
    1: ((0.0, 0.0),),
    2: ((-7.75, 0.0), (7.75, 0.0)),
    3: ((0.0, -7.25), (-7.75, 7.25), (7.75, 7.25)),
}

Mask = npt.NDArray[np.float32]


def render(scene: Scene) -> Image.Image:
    """Draw `scene`. Returns an RGB picture of 64x64."""
    canvas = _background(scene.background)
    for group in scene.groups:
        top, left = group.row * CELL, group.column * CELL
        alpha, ink = _group_layer(group)
        cell = canvas[top : top + CELL, left : left + CELL]
        cell += alpha[:, :, None] * (ink - cell)
    return Image.fromarray((canvas + 0.5).astype(np.uint8), "RGB")


def png_bytes(scene: Scene) -> bytes:
    """Draw `scene` as PNG. The file carries the scene's JSON in a tEXt chunk, as a vector drawing would."""
    info = PngImagePlugin.PngInfo()
    info.add_text(SCENE_KEY, scene.to_json())
    buffer = io.BytesIO()
    render(scene).save(buffer, "PNG", pnginfo=info, compress_level=1)
    return buffer.getvalue()


def scene_of(png: bytes) -> Scene:
    """Return the scene that a PNG of `png_bytes` carries. Raises ValueError when it carries none."""
    try:
        with Image.open(io.BytesIO(png)) as image:
            text = image.info.get(SCENE_KEY)
    except (OSError, SyntaxError, ValueError) as error:
        raise ValueError(f"not a readable picture: {error}") from error
    if text is None:
        raise ValueError(f"the picture carries no scene (PNG text {SCENE_KEY!r}); only pictures of the demo's world do")
    return Scene.from_json(str(text))


def _background(seed: int) -> npt.NDArray[np.float32]:
    """A light tint with low-contrast noise, float32 [64, 64, 3]: what a retriever has to ignore."""
    rng = np.random.default_rng(seed)
    tint = rng.integers(226, 247, size=3)
    clouds = np.kron(rng.integers(-3, 4, size=(8, 8)), np.ones((8, 8)))
    grain = rng.integers(-2, 3, size=(CANVAS, CANVAS))
    return (tint + (clouds + grain)[:, :, None]).astype(np.float32)


def _group_layer(group: Group) -> tuple[Mask, npt.NDArray[np.float32]]:
    """The group's coverage float32 [32, 32] in [0, 1] and its ink float32 [3]."""
    rng = random.Random(group.jitter)
    radius = _RADIUS[group.size][group.count - 1]
    centres = _CENTRES[group.count]
    shift = [_shift(rng, max(abs(c[axis]) for c in centres) + radius) for axis in (0, 1)]
    shade = rng.uniform(0.92, 1.08)
    sprite = _sprite(group.shape, group.texture, group.size, round(radius * _OVERSAMPLING))
    side = sprite.shape[0]
    layer = np.zeros((CELL * _OVERSAMPLING, CELL * _OVERSAMPLING), np.float32)
    for centre in centres:
        left, top = (round((CELL / 2 + centre[i] + shift[i]) * _OVERSAMPLING) - side // 2 for i in (0, 1))
        window = layer[top : top + side, left : left + side]
        np.maximum(window, sprite, out=window)
    alpha: Mask = layer.reshape(CELL, _OVERSAMPLING, CELL, _OVERSAMPLING).mean(axis=(1, 3)).astype(np.float32)
    ink = np.clip(np.array(_RGB[group.colour]) * shade, 0, 255).astype(np.float32)
    return alpha, ink


def _shift(rng: random.Random, reach: float) -> float:
    slack = min(_MAX_SHIFT, CELL / 2 - reach - _MARGIN)
    return rng.uniform(-slack, slack)


@lru_cache(maxsize=256)
def _sprite(shape: str, texture: str, size: str, radius: int) -> Mask:
    """One shape's coverage at the drawing scale, float32 [2*radius, 2*radius] in [0, 1]."""
    side = 2 * radius
    image = Image.new("L", (side, side), 0)
    _draw_shape(ImageDraw.Draw(image), shape, radius)
    mask = np.asarray(image, np.float32) / np.float32(255)
    period = 18 if size == "large" else 12
    offset = (np.arange(side) - radius) % period
    if texture == "hollow":
        mask = mask - _eroded(image, 5 if size == "large" else 3)
    elif texture == "striped":
        stripes = (offset < period // 4) | (offset >= period - period // 4)
        mask = mask * np.where(stripes, 1, _PALE)[:, None].astype(np.float32)
    elif texture == "dotted":
        nearest = np.minimum(offset, period - offset)
        dots = np.hypot(nearest[:, None], nearest[None, :]) < 0.36 * period
        mask = mask * np.where(dots, 1, _PALE).astype(np.float32)
    mask.setflags(write=False)
    return mask


def _eroded(image: Image.Image, width: int) -> Mask:
    """What is left of a coverage picture "L" without a rim of `width`, float32 of the same size."""
    padded = ImageOps.expand(image, width)
    inner = ImageOps.crop(padded.filter(ImageFilter.MinFilter(2 * width + 1)), width)
    return np.asarray(inner, np.float32) / np.float32(255)


def _draw_shape(draw: ImageDraw.ImageDraw, shape: str, radius: int) -> None:
    def disc(x: float, y: float, r: float, fill: int = 255) -> None:
        draw.ellipse(
            [(1 + x - r) * radius, (1 + y - r) * radius, (1 + x + r) * radius, (1 + y + r) * radius], fill=fill
        )

    def polygon(points: list[tuple[float, float]]) -> None:
        draw.polygon([((1 + x) * radius, (1 + y) * radius) for x, y in points], fill=255)

    if shape == "circle":
        disc(0, 0, 0.97)
    elif shape == "ring":
        disc(0, 0, 0.97)
        disc(0, 0, 0.38, fill=0)
    elif shape == "square":
        polygon([(-0.84, -0.84), (0.84, -0.84), (0.84, 0.84), (-0.84, 0.84)])
    elif shape == "triangle":
        polygon([(0, -0.95), (0.97, 0.8), (-0.97, 0.8)])
    elif shape == "diamond":
        polygon([(0, -0.98), (0.66, 0), (0, 0.98), (-0.66, 0)])
    elif shape == "cross":
        polygon([*_quarter_turns([(-0.32, -0.95), (0.32, -0.95), (0.32, -0.32)])])
    elif shape == "star":
        angles = [math.pi * step / 5 for step in range(10)]
        reach = [0.98 if step % 2 == 0 else 0.42 for step in range(10)]
        polygon([(r * math.sin(a), -r * math.cos(a)) for a, r in zip(angles, reach, strict=True)])
    elif shape == "heart":
        disc(-0.46, -0.38, 0.48)
        disc(0.46, -0.38, 0.48)
        polygon([(-0.88, -0.14), (-0.4, -0.38), (0.4, -0.38), (0.88, -0.14), (0, 0.92)])
    else:
        raise ValueError(f"no drawing for shape {shape!r}")


def _quarter_turns(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    turned = []
    for _ in range(4):
        turned += points
        points = [(-y, x) for x, y in points]
    return turned
