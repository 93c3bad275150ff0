"""Batch plans: the same anchors and grids for any number of workers, each anchor image once an epoch."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from repair_ray.training.batches import Batch, BatchPlan
from repair_ray.training.pairs import ABSENT, CorrectedPair, PairSet

IMAGES, CAPTIONS_EACH = 11, 3


def pair_set() -> PairSet:
    """11 images with 3 captions each (3 i .. 3 i + 2); some have repairs, one direction or both, and fallbacks."""
    captions = IMAGES * CAPTIONS_EACH
    owner = np.repeat(np.arange(IMAGES), CAPTIONS_EACH)
    corrected = [
        # i2t: caption 0 (image 0) was retrieved by image 4; the edited caption is 33.
        CorrectedPair("i2t", 0, 4, captions),
        CorrectedPair("i2t", 0, 5, captions + 1),
        CorrectedPair("i2t", 4, 2, captions + 2),
        # t2i: image 2 was retrieved by caption 9; the edited image is 11.
        CorrectedPair("t2i", 2, IMAGES, 9),
        CorrectedPair("t2i", 0, IMAGES + 1, 15),
        # Unedited counterparts: a fallback, and the same real pair for two anchors.
        CorrectedPair("t2i", 7, 3, 9, fallback=True),
        CorrectedPair("t2i", 8, 3, 10),
        CorrectedPair("t2i", 9, 3, 10),
    ]
    return PairSet(
        image_group=np.array([*range(IMAGES), 3, 5]),
        caption_image=np.array([*owner, ABSENT, ABSENT, ABSENT]),
        caption_group=np.array([*owner, 4, 5, 2]),
        caption_text=np.arange(captions + 3),
        anchors=np.arange(captions),
        corrected=corrected,
    )


def items(batch: Batch) -> dict[str, Counter]:  # type: ignore[type-arg]
    """A batch as item numbers, free of positions: what a step holds, whoever holds it."""

    def pictures(slots: np.ndarray) -> list[int]:
        return [ABSENT if slot == ABSENT else int(batch.images[slot]) for slot in slots]

    def texts(slots: np.ndarray) -> list[int]:
        return [ABSENT if slot == ABSENT else int(batch.captions[slot]) for slot in slots]

    return {
        "anchors": Counter((int(batch.images[i]), int(batch.captions[c])) for i, c in batch.anchors),
        "grids": Counter(
            (*pictures(row_i), *texts(row_c))
            for row_i, row_c in zip(batch.grid_images, batch.grid_captions, strict=True)
        ),
        "extra": Counter((int(batch.images[i]), int(batch.captions[c])) for i, c in batch.extra),
    }


def together(batches: list[Batch]) -> dict[str, Counter]:  # type: ignore[type-arg]
    parts = [items(batch) for batch in batches]
    return {name: sum((part[name] for part in parts), Counter()) for name in parts[0]}


@pytest.mark.parametrize("workers", [2, 3, 4])
@pytest.mark.parametrize("batch_size", [4, 8, 128])
@pytest.mark.parametrize("share", [1.0, 0.5])
def test_any_number_of_workers_sees_the_same_step(workers: int, batch_size: int, share: float) -> None:
    # 128 is more than there are anchors: 11 do not divide over the workers, and yet none is left out.
    for step in (0, 1, 2, 7):
        alone = BatchPlan(pair_set(), batch_size, 3, share).step(step)
        parts = [BatchPlan(pair_set(), batch_size, 3, share).step(step, rank, workers) for rank in range(workers)]
        assert together(parts) == items(alone)
        assert max(len(p.anchors) for p in parts) - min(len(p.anchors) for p in parts) <= 1


def test_more_workers_than_anchors_is_refused() -> None:
    with pytest.raises(ValueError, match=r"2 anchors a step do not go round 3 workers; lower training\.workers"):
        BatchPlan(pair_set(), 2, 0).step(0, 0, 3)


def test_plan_is_a_pure_function_of_seed_and_step() -> None:
    plan = BatchPlan(pair_set(), 4, 5)
    forward = [items(plan.step(step)) for step in range(8)]
    backward = [items(plan.step(step)) for step in reversed(range(8))][::-1]
    fresh = [items(BatchPlan(pair_set(), 4, 5).step(step)) for step in range(8)]
    assert forward == backward == fresh
    other_seed = [items(BatchPlan(pair_set(), 4, 6).step(step)) for step in range(8)]
    assert forward != other_seed


def test_every_epoch_has_each_anchor_image_once() -> None:
    plan = BatchPlan(pair_set(), 4, 0)
    # Four epochs of 11 images are 11 steps of 4, with epochs laid end to end.
    anchors = [pair for step in range(11) for pair in items(plan.step(step))["anchors"].elements()]
    drawn = []
    for epoch in range(4):
        part = anchors[epoch * 11 : (epoch + 1) * 11]
        assert sorted(image for image, _ in part) == list(range(IMAGES))
        assert all(caption // CAPTIONS_EACH == image for image, caption in part)
        drawn.append(dict(part))
    assert len({tuple(epoch.items()) for epoch in drawn}) == 4, "orders and captions are drawn anew"
    assert any(drawn[0][image] != drawn[1][image] for image in range(IMAGES))


def test_each_item_is_listed_once_a_worker() -> None:
    plan = BatchPlan(pair_set(), 11, 1)
    for step in range(20):
        batch = plan.step(step)
        assert len(set(batch.images.tolist())) == len(batch.images)
        assert len(set(batch.captions.tolist())) == len(batch.captions)
        used_i = {*batch.anchors[:, 0], *batch.grid_images.ravel()} - {ABSENT}
        used_c = {*batch.anchors[:, 1], *batch.grid_captions.ravel()} - {ABSENT}
        assert used_i == set(range(len(batch.images))), "nothing is encoded for no use"
        assert used_c == set(range(len(batch.captions)))


def test_grids_have_the_pairs_in_their_places() -> None:
    pairs = pair_set()
    plan = BatchPlan(pairs, 11, 1)
    seen: Counter = Counter()  # type: ignore[type-arg]
    for step in range(30):
        found = items(plan.step(step))
        for grid in found["grids"]:
            image, i2t_image, t2i_image, caption, i2t_caption, t2i_caption = grid
            assert found["anchors"][image, caption] == 1
            options_i2t, options_t2i = pairs.grid_of(image, caption)
            listed = [(p.image, p.caption) for p in options_i2t] or [(ABSENT, ABSENT)]
            assert (i2t_image, i2t_caption) in listed
            listed = [(p.image, p.caption) for p in options_t2i] or [(ABSENT, ABSENT)]
            assert (t2i_image, t2i_caption) in listed
            seen[caption, i2t_caption, t2i_caption] += 1
        assert len(list(found["grids"].elements())) == sum(pairs.has_repair(i, c) for i, c in found["anchors"])
    # Caption 0 has two i2t repairs and its image one t2i repair: both grids come up.
    assert seen[0, 33, 15] and seen[0, 34, 15]


def test_extra_pairs_are_the_repairs_of_the_grids_without_fallbacks() -> None:
    plan = BatchPlan(pair_set(), 11, 2)
    for step in range(10):
        found = items(plan.step(step))
        expected: Counter = Counter()  # type: ignore[type-arg]
        for (image, i2t_i, t2i_i, _, i2t_c, t2i_c), times in found["grids"].items():
            if i2t_i != ABSENT:
                expected[i2t_i, i2t_c] += times
            if t2i_i != ABSENT and image != 7:  # image 7 has a fallback alone
                expected[t2i_i, t2i_c] += times
        assert found["extra"] == expected
        assert found["extra"][3, 10] == 2  # brought by two anchors


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_grid_share(share: float) -> None:
    pairs = pair_set()
    plan = BatchPlan(pairs, 11, 0, share)
    batches = [plan.step(step) for step in range(200)]
    able = sum(pairs.has_repair(int(b.images[i]), int(b.captions[c])) for b in batches for i, c in b.anchors)
    brought = sum(len(batch.grid_images) for batch in batches)
    assert brought / able == pytest.approx(share, abs=0.05)
    if share == 0:
        assert batches[0].grid_images.shape == (0, 3) and batches[0].extra.shape == (0, 2)


def weighted(*weights: float) -> PairSet:
    """One image with one caption, which so many corrected pairs want as their anchor."""
    number = len(weights)
    return PairSet(
        image_group=np.arange(1 + number),
        caption_image=np.array([0, *[ABSENT] * number]),
        caption_group=np.arange(1 + number),
        caption_text=np.arange(1 + number),
        anchors=np.array([0]),
        corrected=[CorrectedPair("i2t", 0, 1 + n, 1 + n, weight=weight) for n, weight in enumerate(weights)],
    )


def drawn(pairs: PairSet, grid_share: float = 1.0, steps: int = 4000) -> Counter[int]:
    """How often each corrected pair's caption is drawn; ABSENT where the step has no grid."""
    plan = BatchPlan(pairs, 1, seed=3, grid_share=grid_share)
    batches = [plan.step(step) for step in range(steps)]
    return Counter(
        int(batch.captions[batch.grid_captions[0, 1]]) if len(batch.grid_captions) else ABSENT for batch in batches
    )


def test_pairs_are_drawn_by_weight() -> None:
    found = drawn(weighted(1.0, 0.25))
    assert set(found) == {1, 2}
    # 4000 draws at 4/5: five standard deviations are 127.
    assert abs(found[1] - 3200) < 127


def test_an_anchor_of_light_pairs_brings_a_grid_less_often() -> None:
    found = drawn(weighted(0.25, 0.25), grid_share=0.8)
    # A grid at 0.8 x 0.25 = 1/5 of the steps, either pair at half of these.
    assert abs(found[ABSENT] - 3200) < 127
    assert abs(found[1] - 400) < 95 and abs(found[2] - 400) < 95


def test_full_weights_draw_as_if_there_were_none() -> None:
    pairs = weighted(1.0, 1.0)
    plan = BatchPlan(pairs, 1, seed=3)
    for step in range(20):
        rng = np.random.default_rng([3, step, 0])
        rng.choice(1)
        rng.random()
        assert plan.step(step).captions[plan.step(step).grid_captions[0, 1]] == 1 + int(rng.integers(2))
