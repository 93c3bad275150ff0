"""Visual tokens against open_clip's own forward pass, and towers that have none."""

from __future__ import annotations

import numpy as np
import open_clip
import pytest
import torch
from PIL import Image

from repair_ray.engines.encoder import Encoder
from repair_ray.engines.retriever import RetrieverError, RetrieverSpec
from repair_ray.engines.visual_tokens import VisualTokens


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    return Encoder(RetrieverSpec("tiny-64"), batch_size=2)


@pytest.fixture(scope="module")
def pictures() -> list[Image.Image]:
    draw = np.random.default_rng(0)
    return [Image.fromarray(draw.integers(0, 256, (64, 64, 3), np.uint8)) for _ in range(5)]


def test_patches_are_the_tokens_that_open_clip_gives_projected(encoder: Encoder, pictures: list[Image.Image]) -> None:
    found = VisualTokens(encoder, "patches")(pictures)
    assert found.shape == (5, 16, 128) and found.dtype == np.float32
    visual = encoder.model.visual
    visual.output_tokens = True
    try:
        with torch.no_grad():
            _, tokens = visual(encoder.model_input([encoder.preprocess.pixels(picture) for picture in pictures]))
    finally:
        visual.output_tokens = False
    joint = (tokens @ visual.proj).numpy()
    np.testing.assert_allclose(found, joint / np.linalg.norm(joint, axis=-1, keepdims=True), atol=1e-5)


def test_whole_pictures_are_one_token(encoder: Encoder, pictures: list[Image.Image]) -> None:
    found = VisualTokens(encoder, "whole")(pictures)
    assert found.shape == (5, 1, 128)
    np.testing.assert_allclose(found[:, 0], encoder.encode_images(pictures), atol=1e-6)
    assert VisualTokens(encoder, "whole")([]).shape == (0, 0, 0)


def test_a_tower_without_patch_tokens_says_what_to_set(encoder: Encoder) -> None:
    resnet = open_clip.model.CLIP(
        32,
        {"layers": (1, 1, 1, 1), "width": 8, "image_size": 64, "head_width": 32},
        {"context_length": 8, "vocab_size": 49408, "width": 16, "heads": 1, "layers": 1},
    )
    other = Encoder.__new__(Encoder)
    other.model = resnet
    with pytest.raises(RetrieverError, match=r"tower of RN \(ModifiedResNet\) has no patch.*negatives.tokens=whole"):
        VisualTokens(other, "patches", "RN")
    VisualTokens(other, "whole", "RN")
