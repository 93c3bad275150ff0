"""What figures were measured on, and COCO's folds with its uneven captions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from repair_ray.evaluation.protocols import fold_metrics, folds, protocol_facts, split_hash
from repair_ray.evaluation.retrieval import retrieval_metrics
from tests.evaluation.test_retrieval_metrics import unit

CAPTIONS = [("a0", "a dog"), ("a1", "a cat"), ("b0", "a bird")]


def test_facts_by_hand() -> None:
    facts = protocol_facts("test", ["a", "b", "c"], CAPTIONS, [2, 1, 0])
    assert (facts["images"], facts["captions"]) == (3, 3)
    assert facts["captions_per_image"] == {"min": 0, "mean": 1.0, "max": 2}
    assert facts["ties"].startswith("pessimistic")


def test_the_hash_knows_ids_and_texts_and_no_order() -> None:
    found = split_hash(["a", "b"], CAPTIONS)
    assert found == split_hash(["b", "a"], CAPTIONS[::-1]) and len(found) == 16
    others = [
        split_hash(["a"], CAPTIONS),
        split_hash(["a", "c"], CAPTIONS),
        split_hash(["a", "b"], CAPTIONS[:2]),
        split_hash(["a", "b"], [*CAPTIONS[:2], ("b0", "a bee")]),
        split_hash(["a", "b"], [*CAPTIONS[:2], ("b1", "a bird")]),
    ]
    assert len({found, *others}) == 6


def test_folds() -> None:
    assert folds(5, 2) == [slice(0, 2), slice(2, 4), slice(4, 5)]
    with pytest.raises(ValueError, match="make no two folds of 1000"):
        folds(1000)


def test_a_fold_holds_its_own_pictures_and_captions_alone() -> None:
    # Scores can be read off: caption 1, of picture 0, looks most like picture 2, which lies in the other fold.
    images = np.eye(4, dtype=np.float32)
    captions = np.array([[1, 0, 0, 0], [0.4, 0.1, 0.9, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0.6, 0.5]], np.float32)
    of_image = [np.array(own) for own in ([0, 1], [2], [3], [4])]
    of_caption = [np.array([owner]) for owner in (0, 0, 1, 2, 3)]
    found = fold_metrics(images, captions, of_image, of_caption, np.array([0, 0, 1, 2, 3]), 2)
    # Fold 0 has no mistake; in fold 1 picture 3 prefers its caption, whose own picture comes second.
    assert [fold["t2i"]["r@1"] for fold in found["folds"]] == [100.0, 50.0]
    assert (found["t2i"]["r@1"], found["t2i"]["n"]) == (75.0, 5)
    assert (found["i2t"]["r@1"], found["i2t"]["n"]) == (100.0, 4)
    assert "r@1_ci" not in found["i2t"]


@pytest.fixture(scope="module")
def coco() -> dict[str, Any]:
    """5,000 images and 25,010 captions, ten images with six: each caption looks just like its image, but for the last
    caption of each of the first hundred images, which looks like the next image."""
    images = unit(5000, 16, 0)
    owners = np.repeat(np.arange(5000), [6] * 10 + [5] * 4990)
    features = images[owners]
    last = np.flatnonzero(np.diff(owners))[:100]
    features[last] = images[owners[last] + 1]
    bounds = np.searchsorted(owners, np.arange(5001))
    return {
        "images": images,
        "captions": features,
        "captions_of_image": [np.arange(bounds[i], bounds[i + 1]) for i in range(5000)],
        "images_of_caption": [np.array([owner]) for owner in owners],
        "owners": owners,
    }


def test_coco_5k_with_25010_captions(coco: dict[str, Any]) -> None:
    assert len(coco["captions"]) == 25_010
    found = retrieval_metrics(*(coco[name] for name in list(coco)[:4]), bootstrap=10)
    assert (found["i2t"]["n"], found["t2i"]["n"]) == (5000, 25_010)
    # Images 1 to 100 tie with a caption of the image before: rank 2. A hundred captions miss their image.
    assert (found["i2t"]["r@1"], found["i2t"]["r@5"]) == (98.0, 100.0)
    assert found["t2i"]["r@1"] == pytest.approx(100 * 24_910 / 25_010, abs=1e-3)


def test_coco_1k_is_the_mean_of_five_folds(coco: dict[str, Any]) -> None:
    found = fold_metrics(**coco, bootstrap=10)
    assert [fold["t2i"]["n"] for fold in found["folds"]] == [5010, 5000, 5000, 5000, 5000]
    assert [fold["i2t"]["r@1"] for fold in found["folds"]] == [90.0, 100.0, 100.0, 100.0, 100.0]
    assert found["i2t"]["r@1"] == 98.0
    assert found["t2i"]["r@1"] == pytest.approx(np.mean([100 * 4910 / 5010, 100, 100, 100, 100]), abs=1e-3)
