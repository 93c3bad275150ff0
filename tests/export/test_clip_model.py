"""transformers loads an exported CLIPModel, and its features are open_clip's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import open_clip
import pytest
import torch
from PIL import Image

from repair_ray.engines.encoder import Preprocess, build_model
from repair_ray.engines.retriever import RetrieverSpec
from repair_ray.export.clip_model import write_clip_model
from tests.export.test_model import model_config

transformers = pytest.importorskip("transformers", reason="transformers is not installed (requirements-models.txt)")

pytestmark = pytest.mark.transformers
TEXTS = ["x", "A red dot.", "two dogs don't run; 3 cats do", "a very long caption " * 9]
CASES: dict[str, dict[str, Any]] = {
    "gelu": {},
    "quick_gelu": {"quick_gelu": True, "vision_cfg": {"mlp_ratio": 2.0, "norm_kwargs": {"eps": 1e-3}}},
}


@pytest.mark.parametrize("case", list(CASES))
def test_features_are_equal(tmp_path: Path, case: str) -> None:
    name = model_config(tmp_path, case, **CASES[case])
    ours: Any = build_model(RetrieverSpec(name), seed=4).eval()
    torch.nn.init.constant_(ours.logit_scale, 3.0)
    write_clip_model(ours, name, tmp_path)
    model, found = transformers.CLIPModel.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(found.values()), found
    processor = transformers.CLIPProcessor.from_pretrained(tmp_path)
    assert model.config.text_config.hidden_act == model.config.vision_config.hidden_act == case
    assert model.logit_scale.item() == 3.0
    tokens = open_clip.get_tokenizer(Path(name).stem)(TEXTS)
    # Padded with the end token, where open_clip pads with 0.
    asked = processor.tokenizer(TEXTS, padding=True, truncation=True, return_tensors="pt")
    assert asked.input_ids.shape == (4, 12)
    assert torch.where(asked.attention_mask.bool(), asked.input_ids, 0).equal(tokens)
    pixels = torch.randn(3, 3, 32, 32)
    with torch.no_grad():
        texts, images = model.get_text_features(**asked), model.get_image_features(pixel_values=pixels)
        torch.testing.assert_close(texts.pooler_output, ours.encode_text(tokens), atol=1e-5, rtol=0)
        torch.testing.assert_close(images.pooler_output, ours.encode_image(pixels), atol=1e-5, rtol=0)


@pytest.mark.parametrize("mode", ["shortest", "squash"])
def test_the_processor_prepares_pictures_in_the_same_way(tmp_path: Path, mode: str) -> None:
    name = model_config(tmp_path, "prepared")
    ours: Any = build_model(RetrieverSpec(name))
    ours.visual.preprocess_cfg = {**ours.visual.preprocess_cfg, "resize_mode": mode, "mean": (0.5, 0.4, 0.3)}
    write_clip_model(ours, name, tmp_path)
    picture = Image.radial_gradient("L").resize((64, 48)).convert("RGB")
    preprocess = Preprocess(ours, name)
    expected = preprocess.normalise(preprocess.pixels(picture)[None])
    processor = transformers.CLIPProcessor.from_pretrained(tmp_path)
    found = processor(images=picture, return_tensors="pt").pixel_values
    # Both round to 8 bits on their way, one of them once more often.
    torch.testing.assert_close(found, expected, atol=0.03, rtol=0)
