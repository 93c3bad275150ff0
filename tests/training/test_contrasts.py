"""Negative captions on their way to the loss: pairs, batches, the files between, and what a step makes of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from repair_ray.config import ObjectiveConfig
from repair_ray.run import RunError
from repair_ray.training.batches import Batch, BatchPlan
from repair_ray.training.items import TeacherFeatures, TrainingItems, read_items, write_items
from repair_ray.training.objective import Encoded, Objective
from repair_ray.training.pairs import ABSENT, Contrast, PairSet

IMAGES = 6


def pair_set(contrasts: bool = True) -> PairSet:
    """Six pictures of one caption each; captions 6 .. 8 are negatives of caption 0, caption 9 of caption 1.

    Picture 6 is an edited one that shows caption 9.
    """
    captions = np.arange(IMAGES)
    return PairSet(
        image_group=np.array([*range(IMAGES), 13]),
        caption_image=np.array([*captions, ABSENT, ABSENT, ABSENT, ABSENT]),
        caption_group=np.array([*captions, 10, 11, 12, 13]),
        caption_text=np.arange(IMAGES + 4),
        anchors=captions,
        contrasts=[
            *(Contrast(0, 0, 0, negative) for negative in (6, 7, 8)),
            Contrast(1, 1, 1, 9),
            Contrast(1, 6, 9, 1),
        ]
        if contrasts
        else [],
    )


def fine_rows(batch: Batch) -> set[tuple[int, int, frozenset[int]]]:
    return {
        (
            int(batch.images[image]),
            int(batch.captions[caption]),
            frozenset(int(batch.captions[n]) for n in negatives if n != ABSENT),
        )
        for (image, caption), negatives in zip(batch.fine, batch.negatives, strict=True)
    }


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_a_step_brings_each_anchors_contrasts(workers: int) -> None:
    plan = BatchPlan(pair_set(), IMAGES, seed=3, negatives=3)
    found = set().union(*(fine_rows(plan.step(0, rank, workers)) for rank in range(workers)))
    assert found == {(0, 0, frozenset({6, 7, 8})), (1, 1, frozenset({9})), (6, 9, frozenset({1}))}


def test_more_negatives_than_are_wanted_are_drawn_anew_in_each_epoch() -> None:
    plan = BatchPlan(pair_set(), IMAGES, seed=3, negatives=2)
    drawn = []
    for step in range(12):
        batch = plan.step(step)
        assert batch.negatives.shape == (3, 2)
        drawn += [negatives for image, _, negatives in fine_rows(batch) if image == 0]
    assert all(len(negatives) == 2 and negatives < {6, 7, 8} for negatives in drawn)
    assert len(set(drawn)) == 3


def test_without_the_term_no_negative_is_encoded() -> None:
    batch = BatchPlan(pair_set(), IMAGES, seed=3).step(0)
    assert len(batch.fine) == 0 and batch.negatives.shape == (0, 0)
    assert sorted(batch.captions.tolist()) == list(range(IMAGES))


def test_contrasts_and_teachers_survive_the_files(tmp_path: Path) -> None:
    pairs = pair_set()
    rng = np.random.default_rng(0)
    teacher = TeacherFeatures(None, rng.normal(size=(10, 4)).astype(np.float32))
    items = TrainingItems([(f"{n}.png", None, None) for n in range(7)], [f"t{n}" for n in range(10)], teacher)
    write_items(str(tmp_path), items, pairs)
    read, read_pairs = read_items(str(tmp_path))
    assert list(read_pairs.contrasts) == list(pairs.contrasts)
    assert read.teacher is not None and read.teacher.images is None
    np.testing.assert_array_equal(read.teacher.texts, teacher.texts)
    write_items(str(tmp_path), TrainingItems(items.images, items.texts), pairs)
    assert read_items(str(tmp_path))[0].teacher is None


def encoded(batch: Batch, width: int = 5) -> Encoded:
    generator = torch.Generator().manual_seed(1)

    def unit(number: int) -> torch.Tensor:
        return torch.nn.functional.normalize(torch.randn(number, width, generator=generator), dim=-1)

    return Encoded(0, batch, unit(len(batch.images)), unit(len(batch.captions)), torch.tensor(7.0))


def test_the_fine_grained_term_by_hand() -> None:
    pairs = pair_set()
    batch = BatchPlan(pairs, IMAGES, seed=3, negatives=3).step(0)
    step = encoded(batch)
    objective = Objective(ObjectiveConfig.model_validate({"fine_grained": {"weight": 0.5}}), pairs)
    losses = objective(step)
    rows = []
    for (image, caption), negatives in zip(batch.fine, batch.negatives, strict=True):
        places = [caption, *(n for n in negatives if n != ABSENT)]
        logits = [7.0 * float(step.images[image] @ step.texts[place]) for place in places]
        rows.append(-logits[0] + np.log(np.sum(np.exp(logits))))
    assert float(losses["fine_grained"]) == pytest.approx(0.5 * np.mean(rows), rel=1e-5)


def test_a_term_without_its_data_is_refused() -> None:
    with pytest.raises(RunError, match="no caption has a negative"):
        Objective(ObjectiveConfig.model_validate({"fine_grained": True}), pair_set(contrasts=False))
    with pytest.raises(RunError, match="need a teacher"):
        Objective(ObjectiveConfig.model_validate({"soft_labels": True}), pair_set())
    blind = TeacherFeatures(None, np.ones((10, 4), np.float32))
    with pytest.raises(RunError, match="no features of pictures"):
        Objective(ObjectiveConfig.model_validate({"distill": True}), pair_set(), blind)
    with pytest.raises(RunError, match="intra_modal"):
        Objective(ObjectiveConfig.model_validate({"intra_modal": True}), pair_set(), blind)
    Objective(ObjectiveConfig.model_validate({"intra_modal": {"kinds": ["text"]}}), pair_set(), blind)


def test_teachers_terms_take_the_anchors_that_the_teacher_has_seen() -> None:
    """With a teacher that agrees with the student the soft labels cost nothing, whatever it has not seen."""
    pairs = pair_set()
    batch = BatchPlan(pairs, IMAGES, seed=3).step(0)
    step = encoded(batch)
    images, texts = np.full((7, 5), np.nan, np.float32), np.full((10, 5), np.nan, np.float32)
    images[batch.images], texts[batch.captions] = step.images.numpy(), step.texts.numpy()
    texts[2] = np.nan
    settings = {"soft_labels": True, "intra_modal": {"kinds": ["image", "text"]}, "distill": {"teacher_scale": 7.0}}
    objective = Objective(ObjectiveConfig.model_validate(settings), pairs, TeacherFeatures(images, texts))
    losses = objective(step)
    assert float(losses["soft_labels"]) == pytest.approx(0, abs=1e-6)
    assert float(losses["intra_modal_image"]) == pytest.approx(0, abs=1e-6)
    assert float(losses["intra_modal_text"]) == pytest.approx(0, abs=1e-6)
    # What is left of the distillation is the entropy of the teacher, over the five pairs that it has seen.
    seen = [row for row in batch.anchors if batch.captions[row[1]] != 2]
    logits = 7.0 * step.images[[r[0] for r in seen]] @ step.texts[[r[1] for r in seen]].T
    both = [torch.distributions.Categorical(logits=part).entropy().mean() for part in (logits, logits.T)]
    assert float(losses["distill"]) == pytest.approx(float(sum(both)) / 2, rel=1e-5)


def test_terms_without_weight_are_not_computed() -> None:
    settings = {"infonce_weight": 0, "local_weight": 0, "positive_mixing": {"weight": 2.0}}
    pairs = pair_set()
    objective = Objective(ObjectiveConfig.model_validate(settings), pairs)
    batch = BatchPlan(pairs, IMAGES, seed=3).step(0)
    assert list(objective(encoded(batch))) == ["positive_mixing"]


def test_the_mixtures_of_a_step_are_drawn_by_the_step() -> None:
    pairs = pair_set()
    settings = ObjectiveConfig.model_validate({"hard_negative_mixing": {"k": 4, "pairs": 3}})
    batch = BatchPlan(pairs, IMAGES, seed=3).step(0)

    def loss(step: int, seed: int) -> float:
        made = encoded(batch)
        made.step = step
        return float(Objective(settings, pairs, seed=seed)(made)["hard_negative_mixing"])

    assert loss(1, 0) == loss(1, 0)
    assert len({loss(1, 0), loss(2, 0), loss(1, 1)}) == 3
