"""Compositional scores and zero-shot accuracy: by hand, ties, and retrievers that know nothing."""

from __future__ import annotations

import numpy as np
import pytest

from repair_ray.evaluation.compositional import accuracy, by_group, macro, options_right, winoground
from repair_ray.evaluation.zeroshot import class_features, class_texts, zero_shot_metrics
from tests.evaluation.test_retrieval_metrics import unit


def test_the_right_caption_must_be_above() -> None:
    scores = np.array([[0.3, 0.2], [0.2, 0.3], [0.3, 0.3], [0.3, 0.3 - 1e-7], [np.nan, 0.1], [0.2, np.nan]])
    assert options_right(scores).tolist() == [True, False, False, False, False, False]


def test_of_many_options_the_first_must_be_above_all() -> None:
    scores = np.array([[0.5, 0.1, 0.4, 0.2, 0.3], [0.5, 0.1, 0.6, 0.2, 0.3], [0.5, 0.1, 0.5, 0.2, 0.3]])
    assert options_right(scores).tolist() == [True, False, False]


def test_winoground_by_hand() -> None:
    # Rows: captions; columns: pictures.
    scores = np.array(
        [
            [[0.9, 0.1], [0.2, 0.8]],  # all right
            [[0.9, 0.8], [0.2, 0.85]],  # text: 0.9 > 0.2 and 0.85 > 0.8; image: 0.9 > 0.8 and 0.85 > 0.2
            [[0.9, 0.8], [0.2, 0.7]],  # picture 1 prefers caption 0; each caption prefers its picture? 0.7 > 0.2
            [[0.5, 0.6], [0.4, 0.7]],  # text right; caption 0 prefers picture 1
            [[0.5, 0.5], [0.5, 0.5]],  # ties
        ]
    )
    found = winoground(scores)
    assert found["text"].tolist() == [True, True, False, True, False]
    assert found["image"].tolist() == [True, True, True, False, False]
    assert found["group"].tolist() == [True, True, False, False, False]


def test_winoground_by_chance() -> None:
    found = winoground(np.random.default_rng(0).random((40_000, 2, 2)))
    chance = {"text": 1 / 4, "image": 1 / 4, "group": 1 / 6}
    assert {name: found[name].mean() for name in chance} == pytest.approx(chance, abs=0.01)


def test_macro_average_by_group() -> None:
    right = np.array([True] * 3 + [False] + [True] * 2 + [False] * 4)
    groups = ["on"] * 4 + ["near"] * 2 + ["under"] * 4
    found = by_group(right, groups)
    assert found["macro"] == pytest.approx((75 + 100 + 0) / 3, abs=1e-3)
    assert found["all"]["percent"] == 50.0
    fewer = by_group(right, groups, min_cases=3, left_out=frozenset({"under", "of"}))
    assert (fewer["macro"], list(fewer["groups"])) == (75.0, ["on"])
    assert fewer["left_out"] == {"few_cases": 1, "named": ["under"], "cases": 6}
    assert by_group(right[:0], [])["macro"] is None


def test_macro_leaves_out_what_has_no_case() -> None:
    assert macro({"a": accuracy(np.array([True, False])), "b": accuracy(np.zeros(0, bool))}) == 50.0


def test_constant_embeddings_score_zero() -> None:
    """All scores of a case come from one matrix product, whose rounding must not make a right answer."""
    images, texts = np.tile(unit(1, 128, 0), (50, 1)), np.tile(unit(1, 128, 0), (100, 1))
    scores = (images @ texts.T).reshape(50, 50, 2)[:, 0]
    assert not options_right(scores).any()
    assert not winoground((images @ texts.T)[:, :2].reshape(25, 2, 2))["group"].any()
    found = zero_shot_metrics(images, np.arange(50) % 10, np.tile(unit(1, 128, 0), (10, 1)))
    assert (found["top1"]["percent"], found["top5"]["percent"]) == (0.0, 0.0)


def test_zero_shot_by_hand() -> None:
    assert class_texts(["red_fox", "owl"], ["a {}.", "one {}"]) == ["a red fox.", "one red fox", "a owl.", "one owl"]
    # The mean of two unit vectors at right angles, of unit length again.
    texts = np.array([[1, 0], [0, 1], [0, 1], [0, 1]], np.float32)
    classes = class_features(texts, 2)
    np.testing.assert_allclose(classes, [[0.5**0.5, 0.5**0.5], [0, 1]], atol=1e-6)
    images = np.array([[1, 0], [0, 1], [1, 0]], np.float32)
    found = zero_shot_metrics(images, np.array([0, 1, 1]), classes)
    assert found["top1"]["hits"] == 2 and found["top5"] is None
    assert found["class_mean"] == pytest.approx((100 + 50) / 2)
    with pytest.raises(ValueError, match="3 texts do not divide over 2 classes"):
        class_features(texts[:3], 2)
