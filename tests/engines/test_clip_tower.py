"""The dual encoder on clip features: pooling by hand, masks, texts by lemma or by an open_clip tower, kept weights."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from repair_ray.engines.clip_tower import ClipArchitecture, ClipRetriever, ClipTower, lemmas_of, positions
from repair_ray.engines.retriever import RetrieverError
from repair_ray.engines.words import language

WORDS = ClipArchitecture(3, 8, 0, 2, "words", None, "de", ("regen", "schnee", "stark"))


def clips(*lengths: int, width: int = 3) -> list[np.ndarray]:
    draw = np.random.default_rng(0)
    return [draw.normal(size=(n, width)).astype(np.float32) for n in lengths]


def test_pooling_by_hand() -> None:
    tower = ClipTower(2, 2, 0, 1)
    with torch.no_grad():
        tower.project.weight.copy_(torch.eye(2))
        tower.project.bias.zero_()
        tower.query.copy_(torch.tensor([np.log(3) * np.sqrt(2), 0.0]))
        # Weights go as exp(query * token / sqrt(2)): three to one for the first frame.
        pooled, tokens = tower(
            torch.tensor([[[1.0, 0.0], [0.0, 1.0], [9.0, 9.0]]]), torch.tensor([[True, True, False]])
        )
    expected = np.array([0.75, 0.25]) / np.linalg.norm([0.75, 0.25])
    np.testing.assert_allclose(pooled[0].numpy(), expected, atol=1e-6)
    np.testing.assert_allclose(tokens[0, :2].numpy(), np.eye(2), atol=1e-6)


@pytest.mark.parametrize("layers", [0, 1])
def test_a_clip_is_the_same_beside_longer_ones(layers: int) -> None:
    retriever = ClipRetriever(replace(WORDS, layers=layers)).eval()
    short, long = clips(4, 11)
    alone, both = retriever.encode_clips([short]), retriever.encode_clips([long, short])
    np.testing.assert_allclose(alone[0], both[1], atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(both, axis=1), 1, atol=1e-5)
    tokens = retriever.encode_tokens([long, short], batch_size=1)
    padded = retriever.encode_tokens([long, short])
    assert [part.shape for part in tokens] == [(11, 8), (4, 8)] == [part.shape for part in padded]
    np.testing.assert_allclose(tokens[1], padded[1], atol=1e-5)


def test_a_layer_sees_the_order_of_frames() -> None:
    (clip,) = clips(6)
    for layers, same in ((0, True), (1, False)):
        retriever = ClipRetriever(replace(WORDS, layers=layers)).eval()
        forward, backward = retriever.encode_clips([clip]), retriever.encode_clips([clip[::-1].copy()])
        assert np.allclose(forward, backward, atol=1e-5) is same
    assert positions(5, 7).shape == (5, 7)
    np.testing.assert_allclose(positions(9, 8).norm(dim=1).numpy(), 1, atol=1e-6)


def test_texts_are_means_of_their_lemmas() -> None:
    retriever = ClipRetriever(WORDS)
    table = retriever.text.embedding.weight.detach().numpy()  # padding, unknown, regen, schnee, stark
    found = retriever.encode_texts(["starker Regen", "STARK REGEN", "Hagel", "", "regen hagel"])
    both = table[2] + table[4]
    np.testing.assert_allclose(found[0], both / np.linalg.norm(both), atol=1e-6)
    np.testing.assert_allclose(found[0], found[1], atol=1e-6)
    np.testing.assert_allclose(found[2], table[1] / np.linalg.norm(table[1]), atol=1e-6)
    np.testing.assert_allclose(found[2], found[3], atol=1e-6)
    assert lemmas_of("Starker Regen", language("de")) == ["stark", "regen"]


def test_weights_come_from_the_seed_and_are_kept(tmp_path: Path) -> None:
    one, same, other = ClipRetriever(WORDS, 1), ClipRetriever(WORDS, 1), ClipRetriever(WORDS, 2)
    features = one.encode_clips(clips(3, 5))
    np.testing.assert_array_equal(features, same.encode_clips(clips(3, 5)))
    assert not np.allclose(features, other.encode_clips(clips(3, 5)))
    one.save(tmp_path / "kept")
    loaded = ClipRetriever.load(tmp_path / "kept")
    np.testing.assert_array_equal(features, loaded.encode_clips(clips(3, 5)))
    np.testing.assert_array_equal(one.encode_texts(["regen"]), loaded.encode_texts(["regen"]))
    assert loaded.architecture == WORDS
    with pytest.raises(RetrieverError, match="there is no clip retriever in"):
        ClipRetriever.load(tmp_path / "gone")
    (tmp_path / "kept" / "model.safetensors").write_bytes(b"")
    with pytest.raises(RetrieverError, match="there is no clip retriever in"):
        ClipRetriever.load(tmp_path / "kept")


def test_an_open_clip_tower_reads_texts(tmp_path: Path) -> None:
    made = ClipRetriever(replace(WORDS, text="tiny-64", lemmas=(), layers=1, heads=4), 3)
    texts = made.encode_texts(["viel Regen", "Schnee"])
    assert texts.shape == (2, 128) and made.encode_clips(clips(4)).shape == (1, 128)
    assert not any(name.startswith("text.model.visual") for name in made.state_dict())
    made.save(tmp_path)
    np.testing.assert_array_equal(texts, ClipRetriever.load(tmp_path).encode_texts(["viel Regen", "Schnee"]))
    with pytest.raises(RetrieverError, match=r"tower.heads=3 does not divide the joint width 128"):
        ClipRetriever(replace(WORDS, text="tiny-64", layers=1, heads=3))
    with pytest.raises(RetrieverError, match="unknown"):
        ClipRetriever(replace(WORDS, text="no-such-model"))
