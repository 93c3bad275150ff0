"""Exported retrievers: open_clip loads them with equal features, and what a CLIPModel cannot hold is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import open_clip
import pytest
import torch
from torch import nn

from repair_ray.engines.encoder import build_model, save_weights
from repair_ray.engines.retriever import RetrieverError, RetrieverSpec
from repair_ray.export.clip_model import write_clip_model
from repair_ray.export.model import export_model
from repair_ray.run import Recipe, Run
from tests.export.made_run import make_run

VISION = {"image_size": 32, "layers": 2, "width": 32, "head_width": 16, "patch_size": 16}
TEXT = {"context_length": 12, "vocab_size": 49408, "width": 16, "heads": 2, "layers": 2}


def model_config(folder: Path, name: str, **changed: Any) -> str:
    """The path of a small model's config; `vision_cfg` and `text_cfg` in `changed` add to the plain ones."""
    vision, text = ({**plain, **changed.pop(key, {})} for plain, key in ((VISION, "vision_cfg"), (TEXT, "text_cfg")))
    path = folder / f"{name}.json"
    path.write_text(json.dumps({"embed_dim": 24, "vision_cfg": vision, "text_cfg": text, **changed}))
    return str(path)


def features(model: Any) -> torch.Tensor:
    torch.manual_seed(0)
    pixels = torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        return torch.cat([model.encode_image(pixels), model.encode_text(open_clip.tokenize(["a b", "c"], 28))])


def train(run: Run, place: str, seed: int) -> nn.Module:
    run.ready(place, Recipe({}))
    model = build_model(RetrieverSpec("tiny-64"), seed=seed).eval()
    save_weights(model, run.path(place) / "model.safetensors")
    run.finish(place, Recipe({}), 0.0)
    return model


def test_open_clip_loads_both_of_its_formats(tmp_path: Path) -> None:
    run, config = make_run(tmp_path)
    trained = train(run, "round-1/training", 1)
    export_model(run, config, tmp_path / "safe", "open_clip")
    made = export_model(run, config, tmp_path / "pt", "open_clip-pt")
    for name, weights in (
        (f"local-dir:{tmp_path / 'safe'}", None),
        ("tiny-64", str(tmp_path / "pt" / made["weights"])),
    ):
        if weights:
            open_clip.add_model_config(tmp_path / "pt" / made["config"])
        loaded = open_clip.create_model(name, pretrained=weights).eval()
        assert torch.equal(features(loaded), features(trained))
    assert (tmp_path / "safe/open_clip_model.safetensors").stat().st_mode & 0o777 == 0o644
    state = torch.load(tmp_path / "pt" / made["weights"], weights_only=True)["state_dict"]
    assert state.keys() == trained.state_dict().keys()


def test_the_base_is_what_the_config_names(tmp_path: Path) -> None:
    run, config = make_run(tmp_path)
    base = build_model(RetrieverSpec("tiny-64"), seed=2)
    save_weights(base, tmp_path / "base.safetensors")
    retriever = config.retriever.model_copy(update={"pretrained": str(tmp_path / "base.safetensors")})
    export_model(run, config.model_copy(update={"retriever": retriever}), tmp_path / "out", "open_clip", which="base")
    loaded = open_clip.create_model(f"local-dir:{tmp_path / 'out'}").eval()
    assert torch.equal(features(loaded), features(base.eval()))


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"vision_cfg": {"layers": [1, 1, 1, 1]}}, "its image tower is ModifiedResNet"),
        ({"vision_cfg": {"timm_model_name": "test_vit"}}, "its image tower is TimmModel"),
        ({"vision_cfg": {"pool_type": "avg"}}, "does not read the class token"),
        ({"vision_cfg": {"no_ln_pre": True}}, "no first normalisation"),
        ({"vision_cfg": {"image_size": [32, 64]}}, "not square"),
        ({"vision_cfg": {"ls_init_value": 0.1}}, "its image tower's blocks have layer scales"),
        ({"vision_cfg": {"qk_norm": True}}, "its image tower's blocks have normalisations"),
        ({"text_cfg": {"act_kwargs": {"approximate": "tanh"}}}, "its text tower's activation is neither"),
        ({"text_cfg": {"no_causal_mask": True}}, "its text attention is not causal"),
        ({"text_cfg": {"pool_type": "last"}}, "not read at the end token"),
        ({"text_cfg": {"proj_bias": True}}, "its text projection is none, or has a bias"),
        ({"text_cfg": {"tokenizer_kwargs": {"clean": "canonicalize"}}}, "cleans or shortens texts in its own way"),
        ({"text_cfg": {"vocab_size": 1000}}, "its vocabulary of 1000 is smaller"),
        ({"custom_text": True}, "it is open_clip's CustomTextCLIP"),
        ({"init_logit_bias": -10.0}, "it has a logit bias"),
    ],
)
def test_what_a_clip_model_cannot_hold(tmp_path: Path, changed: dict[str, Any], reason: str) -> None:
    name = model_config(tmp_path, "unlike", **changed)
    model = build_model(RetrieverSpec(name))
    with pytest.raises(RetrieverError, match=reason):
        write_clip_model(model, name, tmp_path)
    assert not (tmp_path / "model.safetensors").exists()
