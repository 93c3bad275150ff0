"""Weights between two retrievers: exact at both ends, the middle by hand, and what does not fit refused."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from PIL import Image

from repair_ray.engines.encoder import Encoder, build_model
from repair_ray.engines.interpolation import Blend, interpolate, state_of
from repair_ray.engines.retriever import RetrieverError, RetrieverSpec

BASE = {
    "w": torch.tensor([1.0, -2.0]),
    "half": torch.tensor([1.0], dtype=torch.bfloat16),
    "logit_scale": torch.tensor(math.log(10.0)),
    "mask": torch.tensor([0.0, -math.inf]),
    "steps": torch.tensor(3),
}
REPAIRED = {
    "w": torch.tensor([2.0, 2.0]),
    "half": torch.tensor([2.0], dtype=torch.bfloat16),
    "logit_scale": torch.tensor(math.log(40.0)),
    "mask": torch.tensor([0.0, -math.inf]),
    "steps": torch.tensor(7),
}


def test_the_middle_by_hand() -> None:
    found = interpolate(BASE, REPAIRED, 0.5)
    assert found["w"].tolist() == [1.5, 0.0]
    assert found["half"].dtype == torch.bfloat16 and found["half"].item() == 1.5
    assert math.exp(found["logit_scale"]) == pytest.approx(20.0, rel=1e-5)  # the geometric mean of 10 and 40
    assert found["mask"].tolist() == [0.0, -math.inf]
    assert found["steps"].item() == 7 and found["steps"].dtype == torch.int64


def test_other_weights_are_refused() -> None:
    with pytest.raises(RetrieverError, match="1 are in one alone, such as steps"):
        interpolate(BASE, {name: value for name, value in REPAIRED.items() if name != "steps"}, 0.5)
    with pytest.raises(RetrieverError, match=r"w is \(2,\) and \(3,\)"):
        interpolate(BASE, {**REPAIRED, "w": torch.zeros(3)}, 0.5)


def test_both_ends_are_the_retrievers_themselves() -> None:
    """Also after the shared model was at another alpha; in the middle it is neither."""
    encoder, spec = Encoder(RetrieverSpec("tiny-64")), RetrieverSpec("tiny-64")
    other = build_model(spec, seed=1)
    states = state_of(encoder), {name: value.clone() for name, value in other.state_dict().items()}
    image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8))
    pixels, texts = [encoder.preprocess.pixels(image)], ["a red circle", "two blue squares"]
    before = encoder.encode_pixels(pixels), encoder.encode_texts(texts)
    middle = Blend(encoder, *states, 0.5)
    halfway = middle.encode_pixels(pixels)
    at_base, at_repaired = Blend(encoder, *states, 0.0), Blend(encoder, *states, 1.0)
    with torch.inference_mode():
        expected = other.eval().encode_text(encoder.preprocess.tokens(texts), normalize=True)  # type: ignore[operator]
    np.testing.assert_allclose(at_repaired.encode_texts(texts), expected.numpy(), atol=1e-6)
    np.testing.assert_array_equal(at_base.encode_pixels(pixels), before[0])
    np.testing.assert_array_equal(at_base.encode_texts(texts), before[1])
    assert np.abs(halfway - before[0]).max() > 1e-3
