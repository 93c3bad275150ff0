"""A training set survives being written and read; the loader gives what computing directly gives."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import open_clip
import pytest
import torch
from PIL import Image

from repair_ray.data.images import ImageProblem
from repair_ray.data.store import ImageStore
from repair_ray.engines.encoder import Preprocess, build_model
from repair_ray.engines.retriever import RetrieverSpec
from repair_ray.training.batches import BatchPlan
from repair_ray.training.items import TrainingItems, read_items, write_items
from repair_ray.training.loader import BatchLoader
from repair_ray.training.pairs import ABSENT, CorrectedPair, PairSet


def training_set() -> tuple[TrainingItems, PairSet]:
    items = TrainingItems(
        [("a.png", None, None), ("b.png", None, None), ("shards/s.tar", 512, 1000)],
        ["a cat", "ein Hund, \u00e4\u732b", "edited", 'quote "x"\n'],
    )
    pairs = PairSet(
        image_group=np.array([0, 1, 1]),
        caption_image=np.array([0, 1, ABSENT, 0]),
        caption_group=np.array([0, 1, 1, 0]),
        caption_text=np.array([0, 1, 2, 0]),
        anchors=np.array([0, 1, 3]),
        corrected=[CorrectedPair("i2t", 0, 1, 2), CorrectedPair("t2i", 1, 2, 0, fallback=True)],
    )
    return items, pairs


def test_write_and_read_items(tmp_path: Path) -> None:
    items, pairs = training_set()
    write_items(str(tmp_path), items, pairs)
    read, read_pairs = read_items(str(tmp_path))
    assert list(read.images) == list(items.images)
    assert list(read.texts) == list(items.texts)
    for name in ("image_group", "caption_image", "caption_group", "caption_text", "anchors", "anchor_images"):
        assert np.array_equal(getattr(read_pairs, name), getattr(pairs, name)), name
    assert list(read_pairs.corrected) == list(pairs.corrected)
    assert read_pairs.grid_of(0, 0) == pairs.grid_of(0, 0)


def test_write_and_read_without_repairs(tmp_path: Path) -> None:
    items, pairs = training_set()
    pairs.corrected = []
    write_items(str(tmp_path), items, pairs)
    assert list(read_items(str(tmp_path))[1].corrected) == []


@pytest.fixture(scope="module")
def preprocess() -> Preprocess:
    return Preprocess(build_model(RetrieverSpec("tiny-64")), "tiny-64")


def pictures(folder: Path, number: int) -> TrainingItems:
    rng = np.random.default_rng(0)
    for i in range(number):
        pixels = rng.integers(0, 256, (40 + 7 * i, 90 - 5 * i, 3), np.uint8)
        Image.fromarray(pixels).save(folder / f"{i}.png")
    return TrainingItems([(f"{i}.png", None, None) for i in range(number)], [f"picture {i}" for i in range(number)])


def plain_pairs(number: int) -> PairSet:
    every = np.arange(number)
    return PairSet(every, every, every, every, every)


@pytest.mark.parametrize("cache_bytes", [0, 3 * 64 * 64 * 2, 2**30])
def test_loader_equals_direct_computation(tmp_path: Path, preprocess: Preprocess, cache_bytes: int) -> None:
    items, pairs = pictures(tmp_path, 6), plain_pairs(6)
    model: Any = build_model(RetrieverSpec("tiny-64"))
    transform = open_clip.image_transform(
        model.visual.image_size, is_train=False, mean=model.visual.image_mean, std=model.visual.image_std
    )
    tokenizer = open_clip.get_tokenizer("tiny-64")
    loader = BatchLoader(BatchPlan(pairs, 4, 0), items, ImageStore(str(tmp_path)), preprocess, cache_bytes=cache_bytes)
    try:
        for step in (0, 1, 2, 5, 4, 0):  # in order, and not
            batch, pixels, tokens = loader.step(step)
            expected = BatchPlan(pairs, 4, 0).step(step)
            assert np.array_equal(batch.images, expected.images) and np.array_equal(batch.anchors, expected.anchors)
            direct = torch.stack([transform(Image.open(tmp_path / f"{i}.png")) for i in expected.images])
            assert torch.allclose(pixels, direct, atol=1e-6)
            assert torch.equal(tokens, tokenizer([items.texts[c] for c in expected.captions]))
    finally:
        loader.close()


def test_workers_load_their_own_share(tmp_path: Path, preprocess: Preprocess) -> None:
    items, pairs = pictures(tmp_path, 5), plain_pairs(5)
    shares = []
    for rank in range(2):
        loader = BatchLoader(
            BatchPlan(pairs, 5, 0), items, ImageStore(str(tmp_path)), preprocess, rank=rank, world_size=2
        )
        shares.append(loader.step(0)[0].images.tolist())
        loader.close()
    assert sorted(shares[0] + shares[1]) == [0, 1, 2, 3, 4]


def test_picture_that_disappears_stops_training(tmp_path: Path, preprocess: Preprocess) -> None:
    items, pairs = pictures(tmp_path, 4), plain_pairs(4)
    (tmp_path / "2.png").unlink()
    before = threading.active_count()
    loader = BatchLoader(BatchPlan(pairs, 4, 0), items, ImageStore(str(tmp_path)), preprocess, cache_bytes=0)
    with pytest.raises(ImageProblem, match="missing_file"):
        loader.step(0)
    loader.close()
    assert threading.active_count() == before
