"""Validation inside training against a count by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from repair_ray.data.store import ImageStore
from repair_ray.engines.encoder import Preprocess, build_model
from repair_ray.engines.retriever import RetrieverSpec
from repair_ray.training.items import TrainingItems, write_items
from repair_ray.training.pairs import PairSet
from repair_ray.training.validation import Validator


class Fixed(nn.Module):
    """Gives features that were set beforehand, in the order in which items come."""

    def __init__(self, images: Tensor, texts: Tensor) -> None:
        super().__init__()
        self.features = {"image": images, "text": texts}
        self.modes: list[bool] = []

    def _next(self, kind: str, number: int) -> Tensor:
        self.modes.append(self.training)
        part, self.features[kind] = self.features[kind][:number], self.features[kind][number:]
        return nn.functional.normalize(part, dim=-1)

    def encode_image(self, pixels: Tensor, normalize: bool = False) -> Tensor:
        return self._next("image", len(pixels))

    def encode_text(self, tokens: Tensor, normalize: bool = False) -> Tensor:
        return self._next("text", len(tokens))


@pytest.fixture(scope="module")
def validator(tmp_path_factory: pytest.TempPathFactory) -> Validator:
    """3 images in 3 groups; captions 0, 1 of image 0, 2 of image 1, 3 of image 2, whose text is that of caption 2."""
    folder = tmp_path_factory.mktemp("validation")
    for number in range(3):
        Image.new("RGB", (70, 70), (40 * number, 0, 0)).save(folder / f"{number}.png")
    owner = np.array([0, 0, 1, 2])
    pairs = PairSet(np.arange(3), owner, owner, np.array([0, 1, 2, 2]), np.arange(4))
    items = TrainingItems([(f"{n}.png", None, None) for n in range(3)], ["a", "b", "same", "same"])
    write_items(str(folder), items, pairs)
    preprocess = Preprocess(build_model(RetrieverSpec("tiny-64")), "tiny-64")
    return Validator(str(folder), ImageStore(str(folder)), preprocess, "cpu")


def test_score_by_hand(validator: Validator) -> None:
    images = torch.eye(3)
    # Caption 0 hits its image; 1 prefers image 1; 2 prefers image 2, right since it has the text of image 2's caption;
    # 3 is as near to image 0 as to its own: a tie is a miss. So t2i has 2 of 4.
    texts = torch.tensor([[1.0, 0, 0], [0.5, 0.8, 0], [0, 0.6, 0.7], [0.7, 0, 0.7]])
    # i2t: image 0 takes caption 0 (right). Image 1 scores caption 1 0.85 and its own caption 2 0.65: a miss. Image 2
    # scores caption 2 0.76 and caption 3 0.71, both right. So 2 of 3.
    model = Fixed(images, texts).train()
    assert validator.score(model, batch_size=2) == pytest.approx(50 * (2 / 4 + 2 / 3), abs=1e-4)
    assert model.training, "the model goes on training"
    assert not any(model.modes), "and was not training while it was scored"


def test_constant_features_score_zero(validator: Validator) -> None:
    assert validator.score(Fixed(torch.ones(3, 2), torch.ones(4, 2))) == 0.0


def test_features_that_are_not_finite_score_zero(validator: Validator) -> None:
    assert validator.score(Fixed(torch.full((3, 2), torch.nan), torch.ones(4, 2))) == 0.0
