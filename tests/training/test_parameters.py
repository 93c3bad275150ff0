"""Frozen towers, rates by layer, low-rank changes: which weights move, and by how much."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from repair_ray.config import TrainingConfig
from repair_ray.engines.encoder import build_model
from repair_ray.engines.retriever import RetrieverSpec
from repair_ray.run import RunError
from repair_ray.training.parameters import IMAGE_TOWER, merged_state, parameter_groups, prepare


def tiny() -> torch.nn.Module:
    return build_model(RetrieverSpec("tiny-64"))


def config(**changes: Any) -> TrainingConfig:
    return TrainingConfig.model_validate(changes)


def test_a_frozen_tower_has_nothing_to_train() -> None:
    for tower, inside in (("image", True), ("text", False)):
        model = prepare(tiny().train(), config(freeze=[tower]))
        for name, parameter in model.named_parameters():
            frozen = name.startswith(IMAGE_TOWER) == inside and name != "logit_scale"
            assert parameter.requires_grad != frozen, name


def test_freezing_both_towers_is_refused() -> None:
    with pytest.raises(RunError, match="nothing is left to train"):
        prepare(tiny(), config(freeze=["image", "text"]))


def test_rates_fall_by_layer_from_the_end_of_each_tower() -> None:
    model = tiny()  # 3 blocks of pictures, 2 of text
    rate: dict[str, float] = {}
    by_id = {id(p): name for name, p in model.named_parameters()}
    for group in parameter_groups(model, 0.1, lr=1.0, layer_decay=0.5):
        rate |= {by_id[id(p)]: group["lr"] for p in group["params"]}
    assert len(rate) == len(by_id)
    assert rate["logit_scale"] == rate["text_projection"] == rate["visual.proj"] == rate["ln_final.weight"] == 1
    # Block n of N lies N - n below the end; the embeddings lie below the first block.
    for block in range(3):
        assert rate[f"visual.transformer.resblocks.{block}.mlp.c_fc.weight"] == 0.5 ** (3 - block)
    for block in range(2):
        assert rate[f"transformer.resblocks.{block}.attn.in_proj_weight"] == 0.5 ** (2 - block)
    for name in ("visual.conv1.weight", "visual.class_embedding", "visual.positional_embedding", "visual.ln_pre.bias"):
        assert rate[name] == 0.5**4, name
    assert rate["token_embedding.weight"] == rate["positional_embedding"] == 0.5**3


def test_without_layer_decay_there_are_two_groups() -> None:
    groups = parameter_groups(tiny(), 0.1, lr=0.3)
    assert sorted((g["weight_decay"], g["lr"], g["scale"]) for g in groups) == [(0.0, 0.3, 1.0), (0.1, 0.3, 1.0)]
    for group in groups:
        assert all((p.ndim >= 2) == (group["weight_decay"] > 0) for p in group["params"])


def test_weights_without_low_rank_changes_are_the_models_own() -> None:
    model = tiny()
    state = merged_state(model)
    assert state.keys() == model.state_dict().keys()


@pytest.mark.transformers
def test_low_rank_changes_train_and_merge() -> None:
    pytest.importorskip("peft")
    torch.manual_seed(0)
    before = tiny().state_dict()
    model = prepare(tiny().train(), config(lora={"rank": 4, "alpha": 8}))
    trained = {name for name, p in model.named_parameters() if p.requires_grad}
    assert "logit_scale" in trained
    assert all("lora_" in name for name in trained - {"logit_scale"})
    pixels, tokens = torch.randn(4, 3, 64, 64), torch.randint(1, 400, (4, 28))
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.5)
    network: Any = model
    for _ in range(3):
        images, texts = network.encode_image(pixels, normalize=True), network.encode_text(tokens, normalize=True)
        loss = torch.nn.functional.cross_entropy(10 * images @ texts.T, torch.arange(4))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    state = merged_state(model)
    assert state.keys() == before.keys()
    changed = {name for name, value in state.items() if not torch.equal(value, before[name])}
    assert any("mlp.c_fc.weight" in name for name in changed)
    assert any("attn" in name for name in changed)
    assert not any("ln_" in name or "embedding" in name for name in changed)
    # The merged weights, in a model without any of peft, give what the trained model gives; and it trains on.
    plain: Any = tiny().eval()
    plain.load_state_dict(state)
    network.eval()
    with torch.no_grad():
        torch.testing.assert_close(network.encode_image(pixels), plain.encode_image(pixels), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(network.encode_text(tokens), plain.encode_text(tokens), rtol=1e-4, atol=1e-5)
    again = merged_state(model)
    for name, value in state.items():
        torch.testing.assert_close(again[name], value, rtol=1e-4, atol=1e-6)
