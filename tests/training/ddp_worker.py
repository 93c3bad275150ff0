"""One process of `test_gradients_ddp`: takes steps with the full `Trainer` on a tiny model and writes its gradients.

    python ddp_worker.py RANK WORLD_SIZE RENDEZVOUS_FILE OUTPUT.npz

Everything is built from fixed seeds, so that any number of processes trains on the same global batches.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from repair_ray.config import ObjectiveConfig, TrainingConfig
from repair_ray.training.batches import BatchPlan
from repair_ray.training.items import TeacherFeatures
from repair_ray.training.pairs import Contrast, CorrectedPair, PairSet
from repair_ray.training.trainer import Trainer

IMAGES, CAPTIONS = 14, 20
CASES = {
    "local": ObjectiveConfig(placement="local", local_weight=0.7),
    "dispersed": ObjectiveConfig(placement="dispersed"),
    "both": ObjectiveConfig(placement="both", local_weight=2.0),
    "push_only": ObjectiveConfig(placement="local", push_only=True),
    "own_scale": ObjectiveConfig(placement="local", local_scale=10.0),
    "all_terms": ObjectiveConfig.model_validate(
        {
            # Not dispersed: hard_negative_mixing draws by the place of a row, and dispersed rows lie elsewhere then.
            "placement": "local",
            "soft_labels": True,
            "intra_modal": {"kinds": ["image", "text"]},
            "fine_grained": {"negatives": 2, "candidates": "batch"},
            "positive_mixing": {"margin": 0.5},
            "hard_negative_mixing": {"k": 3, "pairs": 4},
            "distill": {"teacher_scale": 10.0},
        }
    ),
    "own_negatives": ObjectiveConfig.model_validate({"fine_grained": {"negatives": 2, "candidates": "own"}}),
}
# The same with gradient caching: so few items at a time that workers have different numbers of parts.
CACHED = {case: 3 for case in CASES}


class TinyModel(nn.Module):
    """A dual encoder of a few hundred parameters with open_clip's interface."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.visual = nn.Sequential(nn.Flatten(), nn.Linear(12, 16), nn.GELU(), nn.Linear(16, 8))
        self.words = nn.Embedding(30, 8)
        self.text = nn.Linear(8, 8)
        self.logit_scale = nn.Parameter(torch.tensor(2.0))

    def encode_image(self, pixels: Tensor, normalize: bool = False) -> Tensor:
        features = self.visual(pixels)
        return nn.functional.normalize(features, dim=-1) if normalize else features

    def encode_text(self, tokens: Tensor, normalize: bool = False) -> Tensor:
        features = self.text(self.words(tokens).mean(1))
        return nn.functional.normalize(features, dim=-1) if normalize else features


def pair_set() -> PairSet:
    """9 anchor images with one or two captions; grids pile up on some anchors, so that workers have uneven numbers."""
    owner = np.array([0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 1, 2, 3])
    corrected = [
        CorrectedPair("i2t", 0, 3, 13),
        CorrectedPair("i2t", 9, 4, 14),
        CorrectedPair("i2t", 2, 0, 15),
        CorrectedPair("i2t", 2, 1, 16, fallback=True),
        CorrectedPair("t2i", 0, 9, 5),
        CorrectedPair("t2i", 5, 10, 2),
        # The same unedited pair for two anchors: they may lie on two workers.
        CorrectedPair("t2i", 1, 6, 6),
        CorrectedPair("t2i", 2, 6, 6),
        CorrectedPair("t2i", 3, 6, 6),
        CorrectedPair("t2i", 7, 8, 8, fallback=True),
    ]
    return PairSet(
        image_group=np.array([0, 1, 2, 3, 4, 5, 6, 7, 7, 5, 2, 0, 0, 0]),  # images 7 and 8 share a group
        caption_image=np.array([*owner, -1, -1, -1, -1, -1, -1, -1]),
        caption_group=np.array([0, 1, 2, 3, 4, 5, 6, 7, 7, 0, 1, 2, 3, 3, 4, 0, 1, 0, 0, 0]),
        caption_text=np.array([0, 1, 2, 3, 4, 5, 6, 7, 8, 1, *range(10, 20)]),  # captions 1 and 9 have equal texts
        anchors=np.arange(13),
        corrected=corrected,
        contrasts=[Contrast(n, n, n, 13 + n) for n in range(5)] + [Contrast(1, 1, 1, 19)],
    )


def teacher() -> TeacherFeatures:
    draws = np.random.default_rng(3)
    images, texts = (draws.normal(size=(count, 7)) for count in (IMAGES, CAPTIONS))
    return TeacherFeatures(*(rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (images, texts)))


def run(rank: int, world_size: int) -> dict[str, np.ndarray]:
    """Gradients by case, step and parameter, the losses, and how many grids this worker had."""
    rng = torch.Generator().manual_seed(1)
    pixels = torch.randn(IMAGES, 3, 2, 2, generator=rng)
    tokens = torch.randint(30, (CAPTIONS, 5), generator=rng)
    found: dict[str, np.ndarray] = {}
    for case, size in [*((case, None) for case in CASES), *CACHED.items()]:
        objective = CASES[case]
        config = TrainingConfig(steps=10, batch_size=128, lr=1e-3, grad_clip=None, micro_batch=size)
        negatives = objective.fine_grained.negatives if objective.fine_grained else 0
        name_of_case = case if size is None else f"{case}_cached"
        wrap = DistributedDataParallel if world_size > 1 else (lambda module: module)
        for step in range(3):
            # A fresh model each step: Adam would blow up differences of rounding.
            trainer = Trainer(TinyModel(), pair_set(), config, objective, teacher=teacher(), wrap=wrap)
            batch = BatchPlan(pair_set(), config.batch_size, seed=4, negatives=negatives).step(step, rank, world_size)
            report = trainer.step(step, batch, pixels[batch.images], tokens[batch.captions])
            for name, parameter in trainer.model.named_parameters():
                assert parameter.grad is not None, name
                found[f"{name_of_case}/{step}/{name}"] = parameter.grad.numpy()
            for name, loss in report.losses.items():
                found[f"{name_of_case}/{step}/loss/{name}"] = np.array(loss)
            found[f"grids/{step}"] = np.array(len(batch.grid_images))
            found[f"anchors/{step}"] = np.array(len(batch.anchors))
    return found


if __name__ == "__main__":
    torch.set_num_threads(1)
    place, size = int(sys.argv[1]), int(sys.argv[2])
    dist.init_process_group("gloo", init_method=f"file://{sys.argv[3]}", rank=place, world_size=size)
    found: dict[str, Any] = dict(run(place, size))
    np.savez(sys.argv[4], **found)
    dist.destroy_process_group()
