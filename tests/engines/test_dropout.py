"""Dropout that is hung on a text tower: what it changes in training, and what it leaves alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import open_clip
import pytest
import torch
from torch import Tensor, nn

from repair_ray.engines.dropout import TextDropout
from repair_ray.engines.encoder import build_model, save_config, save_weights
from repair_ray.engines.retriever import RetrieverError, RetrieverSpec

TOKENS = torch.randint(1, 40_000, (3, 28), generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def plain() -> Any:
    return build_model(RetrieverSpec("tiny-64"))


@pytest.fixture
def model() -> Any:
    return build_model(RetrieverSpec("tiny-64"))


def twice(model: Any, dropout: TextDropout, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Both passes over the three texts, in training."""
    model.train()
    dropout.begin(seed, 0, 3, 3, "cpu")
    with torch.no_grad():
        first, second = model.encode_text(TOKENS.repeat(2, 1), normalize=True).chunk(2)
    return first, second


def test_passes_differ_in_training_and_agree_in_evaluation(model: Any, plain: Any) -> None:
    dropout = TextDropout(model, 0.1)
    first, second = twice(model, dropout)
    cosines = (first * second).sum(1)
    assert torch.all(cosines < 0.999) and torch.all(cosines > 0.3)
    with torch.no_grad():
        assert torch.equal(model.eval().encode_text(TOKENS), plain.eval().encode_text(TOKENS))


def test_the_seed_decides(model: Any) -> None:
    dropout = TextDropout(model, 0.1)
    first = twice(model, dropout, seed=5)
    torch.manual_seed(99)
    assert torch.equal(first[0], twice(model, dropout, seed=5)[0])
    assert not torch.allclose(first[0], twice(model, dropout, seed=6)[0])


def test_a_worker_drops_what_one_alone_would(model: Any) -> None:
    dropout = TextDropout(model, 0.3)
    whole = torch.cat(twice(model, dropout, seed=2)).reshape(2, 3, -1)
    for start, stop in ((0, 1), (1, 3)):
        dropout.begin(2, start, stop, 3, "cpu")
        with torch.no_grad():
            part = model.encode_text(TOKENS[start:stop].repeat(2, 1), normalize=True)
        assert torch.allclose(part.reshape(2, stop - start, -1), whole[:, start:stop], atol=1e-5)


def test_weights_keep_their_names_and_load_into_open_clip(model: Any, plain: Any, tmp_path: Path) -> None:
    TextDropout(model, 0.1)
    assert list(model.state_dict()) == list(plain.state_dict())
    save_config(model, "tiny-64", tmp_path)
    save_weights(model, tmp_path / "open_clip_model.safetensors")
    loaded, *_ = open_clip.create_model_and_transforms(f"local-dir:{tmp_path}")
    with torch.no_grad():
        assert torch.allclose(loaded.eval().encode_text(TOKENS), model.eval().encode_text(TOKENS), atol=1e-6)


def test_the_rate_is_that_of_each_place_and_what_is_kept_is_scaled_up() -> None:
    """On the hooks alone: a transformer whose blocks add nothing but ones."""
    model = Stack()
    dropout = TextDropout(model, 0.25)
    dropout.begin(0, 0, 500, 500, "cpu")
    before, attention, mlp = model.train().transformer(torch.ones(1000, 2, 4))
    for part in (before, attention, mlp):
        values, counts = part.unique(return_counts=True)
        assert values.tolist() == pytest.approx([0.0, 1 / 0.75])
        assert counts[0].item() / part.numel() == pytest.approx(0.25, abs=0.02)
    assert not torch.equal(before, attention) and not torch.equal(attention, mlp)


def test_every_architecture_of_text_tower_of_open_clip() -> None:
    small: dict[str, Any] = {"context_length": 28, "vocab_size": 49408, "width": 16, "heads": 2, "layers": 1}
    vision = {"image_size": 16, "layers": 1, "width": 16, "head_width": 8, "patch_size": 8}
    towers = {
        "clip": {},
        "custom_text": {"no_causal_mask": True, "pool_type": "last"},
        "custom_blocks": {"qk_norm": True, "scale_attn": True},
    }
    for name, more in towers.items():
        kind = open_clip.CustomTextCLIP if name != "clip" else open_clip.CLIP
        model = kind(embed_dim=8, vision_cfg=vision, text_cfg={**small, **more})
        first, second = twice(model, TextDropout(model, 0.2))
        assert not torch.allclose(first, second), name


def test_a_tower_with_dropout_of_its_own_keeps_it() -> None:
    model = Own(0.5)
    dropout = TextDropout(model, 0.1)
    model.train()
    dropout.begin(3, 0, 2, 2, "cpu")
    first = model.text(torch.ones(4, 100))
    assert first.unique().tolist() == pytest.approx([0.0, 2.0])  # its own rate, not 0.1
    dropout.begin(3, 0, 2, 2, "cpu")
    assert torch.equal(first, model.text(torch.ones(4, 100)))


def test_a_tower_without_any_dropout_is_refused() -> None:
    with pytest.raises(RetrieverError, match="has no dropout, and no blocks to hang it on"):
        TextDropout(Own(0.0), 0.1)


def test_a_forward_pass_of_another_size_is_refused(model: Any) -> None:
    dropout = TextDropout(model, 0.1)
    model.train()
    with pytest.raises(RuntimeError, match="begin"):
        model.encode_text(TOKENS)
    dropout.begin(0, 0, 3, 3, "cpu")
    with pytest.raises(RetrieverError, match="not a row for each text"):
        model.encode_text(TOKENS)


class Ones(nn.Module):
    def forward(self, features: Tensor) -> Tensor:
        return torch.ones_like(features)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attn, self.mlp = Ones(), Ones()


class Blocks(nn.Module):
    """What open_clip calls a transformer: here it hands out its input and what its one block would add."""

    def __init__(self) -> None:
        super().__init__()
        self.resblocks = nn.ModuleList([Block()])

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        block: Any = self.resblocks[0]
        return features, block.attn(features), block.mlp(features)


class Stack(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.transformer = Blocks()


class Own(nn.Module):
    """A dual encoder whose text tower has no blocks of open_clip."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.text = nn.Sequential(nn.Dropout(rate))
