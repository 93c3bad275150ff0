"""A sentence-transformers model as a teacher of texts: a small random one, through its own library."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from repair_ray.engines.retriever import RetrieverError, RetrieverSpec, sees_texts_only
from repair_ray.engines.sentences import SentenceEncoder
from tests.fixtures import tiny_models

pytestmark = pytest.mark.transformers


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    sentence = pytest.importorskip("sentence_transformers")
    from sentence_transformers.models import Pooling, Transformer
    from transformers import BertConfig, BertModel

    folder = tmp_path_factory.mktemp("bert")
    config = BertConfig(
        vocab_size=600,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=32,
    )
    BertModel(config).save_pretrained(folder)
    tiny_models.tokenizer().save_pretrained(folder)
    words = Transformer(str(folder), max_seq_length=32)
    made = sentence.SentenceTransformer(modules=[words, Pooling(16)], device="cpu")
    made.save(str(folder / "whole"))
    return f"sentence-transformers:{folder / 'whole'}"


def test_texts_become_unit_vectors_whatever_the_batch(model: str) -> None:
    texts = ["a red circle", "two blue stars above a heart", "x"]
    found = SentenceEncoder(RetrieverSpec(model)).encode_texts(texts)
    assert found.shape == (3, 16) and found.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, rtol=1e-5)
    alone = SentenceEncoder(RetrieverSpec(model), batch_size=1).encode_texts(texts)
    np.testing.assert_allclose(found, alone, atol=1e-5)
    assert SentenceEncoder(RetrieverSpec(model)).encode_texts([]).shape == (0, 0)


def test_a_long_text_is_said_to_be_cut(model: str) -> None:
    encoder = SentenceEncoder(RetrieverSpec(model))
    assert not encoder.truncated("a red circle")
    assert encoder.truncated("a red circle and " * 20)


def test_pictures_are_refused(model: str) -> None:
    encoder = SentenceEncoder(RetrieverSpec(model))
    assert encoder.encode_images([]).size == 0
    with pytest.raises(RetrieverError, match="sees no pictures"):
        encoder.encode_images([Image.new("RGB", (4, 4))])


def test_a_model_that_is_not_there(tmp_path: Path) -> None:
    pytest.importorskip("sentence_transformers")
    assert sees_texts_only("sentence-transformers:x") and not sees_texts_only("ViT-B-32")
    with pytest.raises(RetrieverError, match="cannot load sentence-transformers:"):
        SentenceEncoder(RetrieverSpec(f"sentence-transformers:{tmp_path / 'none'}"))
