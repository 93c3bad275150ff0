"""The retriever against open_clip itself: same pixels, same tokens, same features after saving."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import open_clip
import pytest
import torch
from PIL import Image

from repair_ray.engines.encoder import Encoder, build_model, check_tag, save_config, save_weights
from repair_ray.engines.retriever import RetrieverError, RetrieverSpec, weights_identity

LONG = "a red circle above a blue square " * 6


def picture(width: int, height: int, seed: int = 0) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8))


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    return Encoder(RetrieverSpec("tiny-64"), batch_size=4)


@pytest.mark.parametrize("size", [(64, 64), (200, 90), (31, 77), (1, 1), (640, 480)])
def test_pixels_equal_open_clips_own_transform(encoder: Encoder, size: tuple[int, int]) -> None:
    _, _, transform = open_clip.create_model_and_transforms("tiny-64")
    image = picture(*size)
    ours = encoder.preprocess.normalise(encoder.preprocess.pixels(image)[None])[0]
    assert ours.shape == (3, 64, 64)
    torch.testing.assert_close(ours, transform(image), atol=1e-6, rtol=0)


def test_pixels_follow_the_models_own_preprocessing(tmp_path: Path) -> None:
    # SigLIP's numbers: bilinear squash, other mean and deviation.
    config = {**model_config(), "vision_cfg": {**model_config()["vision_cfg"], "image_size": 32}}
    path = tmp_path / "squash-32.json"
    path.write_text(json.dumps(config))
    encoder = Encoder(RetrieverSpec(str(path)))
    settings = {"size": 32, "mean": (0.5, 0.5, 0.5), "std": (0.25, 0.5, 1.0), "interpolation": "bilinear"}
    visual: Any = encoder.model.visual
    visual.preprocess_cfg = {**settings, "resize_mode": "squash"}
    preprocess = type(encoder.preprocess)(encoder.model, str(path))
    transform = open_clip.transform.image_transform_v2(
        open_clip.transform.PreprocessCfg(**settings, resize_mode="squash"), is_train=False
    )
    image = picture(90, 40)
    ours = preprocess.normalise(preprocess.pixels(image)[None])[0]
    torch.testing.assert_close(ours, transform(image), atol=1e-6, rtol=0)


def test_truncated_text_keeps_its_end_and_is_flagged(encoder: Encoder) -> None:
    preprocess = encoder.preprocess
    assert preprocess.context_length == 28
    short, long = preprocess.tokens(["a red circle", LONG])
    end = 49407
    assert short[:5].tolist()[-1] == end and short[5:].sum() == 0
    assert long[27] == end and (long[:27] != end).all()
    assert not preprocess.truncated("a red circle") and preprocess.truncated(LONG)


def test_the_longest_text_that_fits_is_not_flagged(encoder: Encoder) -> None:
    fits, over = " ".join(["red"] * 26), " ".join(["red"] * 27)
    assert not encoder.preprocess.truncated(fits) and encoder.preprocess.truncated(over)
    # The same tokens: what is beyond the context does not reach the model.
    assert torch.equal(*encoder.preprocess.tokens([fits, over]))


@pytest.mark.parametrize("hugging_face", [False, True])
def test_an_edit_is_seen_where_all_its_changes_lie_within_the_context(encoder: Encoder, hugging_face: bool) -> None:
    """28 places: start, 26 words, end. The wrappers of Hugging Face tokenizers have no `encode`; they add both ends."""
    preprocess = copy.copy(encoder.preprocess)
    if hugging_face:
        preprocess.tokenizer = SimpleNamespace(tokenizer=lambda text: {"input_ids": [0, *map(hash, text.split()), 2]})
    words = ["red"] * 40

    def seen(*changes: tuple[int, str]) -> bool:
        edited = list(words)
        for place, word in changes:
            edited[place] = word
        return preprocess.sees_change(" ".join(words), " ".join(word for word in edited if word))

    assert seen((0, "blue")) and seen((25, "blue"))
    assert not seen((26, "blue")) and not seen((0, "blue"), (39, "blue"))
    assert seen((25, "")), "what is left out within the context lets the next word in"
    assert preprocess.sees_change(" ".join(words), "blue"), "a text that fits is seen whole"
    assert preprocess.truncated(" ".join(words[:27])) and not preprocess.truncated(" ".join(words[:26]))


def test_a_folder_with_weights_and_config_is_a_whole_open_clip_model(tmp_path: Path) -> None:
    model = build_model(RetrieverSpec("tiny-64"), seed=3)
    visual: Any = model.visual
    visual.preprocess_cfg = {**visual.preprocess_cfg, "mean": (0.5, 0.5, 0.5), "resize_mode": "squash"}
    save_weights(model, tmp_path / "model.safetensors")
    save_config(model, "tiny-64", tmp_path)
    image = picture(90, 40)
    theirs, _, transform = open_clip.create_model_and_transforms(f"local-dir:{tmp_path}")
    expected = theirs.eval().encode_image(transform(image)[None], normalize=True).detach().numpy()
    for spec in (
        RetrieverSpec("tiny-64", str(tmp_path / "model.safetensors")),
        RetrieverSpec(f"local-dir:{tmp_path}", f"local-dir:{tmp_path}"),
    ):
        ours = Encoder(spec)
        np.testing.assert_allclose(ours.encode_images([image]), expected, atol=1e-5)
    random = Encoder(RetrieverSpec(f"local-dir:{tmp_path}"))
    assert np.abs(random.encode_images([image]) - expected).max() > 0.01, "without weights its own are not loaded"


def test_a_tag_must_exist_and_have_the_models_activation() -> None:
    check_tag("ViT-B-32-quickgelu", "openai")
    check_tag("ViT-B-32", "laion2b_s34b_b79k")
    with pytest.raises(RetrieverError, match=r"QuickGELU: set retriever\.model=ViT-B-32-quickgelu"):
        check_tag("ViT-B-32", "openai")
    with pytest.raises(RetrieverError, match="no tag of ViT-B-32; its tags: openai, laion400m_e31"):
        check_tag("ViT-B-32", "laion")


def test_weights_are_known_by_their_content(tmp_path: Path) -> None:
    assert weights_identity(None) is None and weights_identity("openai") == "openai"
    first, second = tmp_path / "a.pt", tmp_path / "b.pt"
    first.write_bytes(b"1"), second.write_bytes(b"2")
    found = [weights_identity(str(path)) for path in (first, second)]
    assert found[0] != found[1] and str(found[0]).startswith("sha256:6b86b273ff34fce1")
    second.write_bytes(b"1")
    assert weights_identity(str(second)) == found[0]


def test_features_are_unit_rows_whatever_the_batch(encoder: Encoder) -> None:
    images = [picture(50 + i, 70, i) for i in range(9)]
    texts = [f"{i} red circles" for i in range(8)] + [LONG]
    by_images, by_texts = encoder.encode_images(images), encoder.encode_texts(texts)
    for features in (by_images, by_texts):
        assert features.shape == (9, 128) and features.dtype == np.float32
        np.testing.assert_allclose(np.linalg.norm(features, axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(encoder.encode_images(images[5:6])[0], by_images[5], atol=1e-5)
    np.testing.assert_allclose(encoder.encode_texts(texts[8:])[0], by_texts[8], atol=1e-5)


def test_nothing_to_encode(encoder: Encoder) -> None:
    assert len(encoder.encode_images([])) == len(encoder.encode_texts([])) == 0


def model_config(**changes: object) -> dict:  # type: ignore[type-arg]
    return {
        "embed_dim": 16,
        "vision_cfg": {"image_size": 32, "layers": 1, "width": 32, "head_width": 16, "patch_size": 16},
        "text_cfg": {"context_length": 8, "vocab_size": 49408, "width": 16, "heads": 2, "layers": 1},
        **changes,
    }


@pytest.mark.parametrize("quick_gelu", [False, True])
def test_saved_weights_give_the_same_features_in_open_clip(tmp_path: Path, quick_gelu: bool) -> None:
    config = tmp_path / f"saved-{quick_gelu}.json"
    config.write_text(json.dumps(model_config(quick_gelu=quick_gelu)))
    model: Any = build_model(RetrieverSpec(str(config)), seed=7).eval()
    weights = tmp_path / "model.safetensors"
    save_weights(model, weights)
    plain: Any = open_clip.create_model(config.stem, pretrained=str(weights)).eval()
    ours = build_model(RetrieverSpec(str(config), str(weights)), seed=1).eval()
    pixels = torch.randn(3, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    tokens = open_clip.get_tokenizer(config.stem)(["a", "two red hearts", LONG])
    with torch.no_grad():
        for other in (plain, ours):
            for name, given in (("encode_image", pixels), ("encode_text", tokens)):
                expected = getattr(model, name)(given, normalize=True)
                torch.testing.assert_close(getattr(other, name)(given, normalize=True), expected, atol=1e-5, rtol=0)
    assert torch.equal(plain.logit_scale, model.logit_scale)


def test_saving_leaves_the_model_alone(tmp_path: Path) -> None:
    model = build_model(RetrieverSpec("tiny-64"))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    save_weights(model, tmp_path / "a.safetensors")
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.requires_grad for parameter in model.parameters())


@pytest.mark.parametrize("wrapped", [False, True])
def test_pt_checkpoints_with_and_without_wrapping(tmp_path: Path, wrapped: bool) -> None:
    state = build_model(RetrieverSpec("tiny-64"), seed=3).state_dict()
    saved = {"state_dict": {f"module.{name}": value for name, value in state.items()}, "epoch": 3} if wrapped else state
    torch.save(saved, tmp_path / "checkpoint.pt")
    loaded = build_model(RetrieverSpec("tiny-64", str(tmp_path / "checkpoint.pt")), seed=0).state_dict()
    assert all(torch.equal(value, state[name]) for name, value in loaded.items())


def test_the_seed_decides_the_initialisation() -> None:
    first, again, other = (build_model(RetrieverSpec("tiny-64"), seed=s).state_dict() for s in (1, 1, 2))
    assert all(torch.equal(value, again[name]) for name, value in first.items())
    assert not torch.equal(first["text_projection"], other["text_projection"])


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (RetrieverSpec("ViT-B-23"), r"unknown retriever\.model 'ViT-B-23'"),
        (RetrieverSpec("/nowhere/model.json"), "no model config at /nowhere/model.json"),
        (RetrieverSpec("tiny-64", "/nowhere/model.pt"), "no checkpoint at /nowhere/model.pt"),
        (RetrieverSpec("tiny-64", "laion2b"), "cannot build retriever 'tiny-64' with weights 'laion2b'"),
    ],
)
def test_what_cannot_be_built_is_named(spec: RetrieverSpec, message: str) -> None:
    with pytest.raises(RetrieverError, match=message):
        build_model(spec)


def test_a_config_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "half.json").write_text('{"embed_dim": 4}')
    with pytest.raises(RetrieverError, match="embed_dim, vision_cfg and text_cfg are needed"):
        build_model(RetrieverSpec(str(tmp_path / "half.json")))


def test_checkpoint_of_another_model(tmp_path: Path) -> None:
    config = tmp_path / "other-32.json"
    config.write_text(json.dumps(model_config()))
    save_weights(build_model(RetrieverSpec(str(config))), tmp_path / "other.safetensors")
    with pytest.raises(RetrieverError, match=r"other\.safetensors does not fit the model"):
        build_model(RetrieverSpec("tiny-64", str(tmp_path / "other.safetensors")))


class Sneaky:
    """What a hostile checkpoint holds: an object that runs something when it is unpickled."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple:  # type: ignore[type-arg]
        return open, (self.path, "w")


@pytest.mark.parametrize("content", ["pickle", "garbage"])
def test_hostile_or_broken_checkpoints_do_not_run(tmp_path: Path, content: str) -> None:
    path = tmp_path / "bad.pt"
    if content == "pickle":
        torch.save({"state_dict": Sneaky(str(tmp_path / "ran"))}, path)
    else:
        path.write_bytes(b"<html>404</html>")
    with pytest.raises(RetrieverError, match="cannot build retriever 'tiny-64'"):
        build_model(RetrieverSpec("tiny-64", str(path)))
    assert not (tmp_path / "ran").exists()
