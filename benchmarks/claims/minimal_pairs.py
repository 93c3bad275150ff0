"""Minimal pairs: two scenes that differ in one thing, with their full captions, told apart or not."""

from __future__ import annotations

import random
from io import BytesIO

import numpy as np
from PIL import Image

from repair_ray.engines.encoder import Encoder
from repair_ray.engines.retriever import RetrieverSpec
from repair_ray.world.captions import captions
from repair_ray.world.generate import random_scene, sibling
from repair_ray.world.render import png_bytes
from repair_ray.world.scene import Scene, derived_seed
from repair_ray.world.truth import describes

PAIRS = 1000
Pair = tuple[Scene, Scene, str, str]


def minimal_pairs(number: int, seed: int) -> list[Pair]:
    """Scenes `a` and `b` that differ in one attribute, count or place, and their full captions.

    Each caption is true of its own scene alone.
    """
    rng = random.Random(derived_seed("minimal pairs", seed))
    found: list[Pair] = []
    while len(found) < number:
        a = random_scene(rng)
        b = sibling(a, rng)
        said_a, said_b = (captions(scene, derived_seed("minimal", seed, len(found)), 1)[0] for scene in (a, b))
        if not describes(said_a, b) and not describes(said_b, a):
            found.append((a, b, said_a, said_b))
    return found


def accuracies(spec: RetrieverSpec, seed: int, number: int = PAIRS) -> dict[str, float]:
    """Percent of pairs told apart: both captions by the picture (`i2t`), both pictures by the caption (`t2i`), `both`.

    As Winoground's text, image and group scores; a tie is wrong.
    """
    pairs = minimal_pairs(number, seed)
    encoder = Encoder(spec)
    pictures = [Image.open(BytesIO(png_bytes(scene))).convert("RGB") for pair in pairs for scene in pair[:2]]
    images = encoder.encode_images(pictures).reshape(number, 2, -1)
    texts = encoder.encode_texts([text for pair in pairs for text in pair[2:]]).reshape(number, 2, -1)
    scores = np.einsum("nid,ntd->nit", images, texts)
    own = scores[:, [0, 1], [0, 1]]
    i2t = (own > scores[:, [0, 1], [1, 0]]).all(1)
    t2i = (own > scores[:, [1, 0], [0, 1]]).all(1)
    return {name: 100 * float(right.mean()) for name, right in (("i2t", i2t), ("t2i", t2i), ("both", i2t & t2i))}
