"""One process of `test_text_trainer`: one text-only step of a real tower; writes its losses and gradients.

python text_worker.py RANK WORLD_SIZE RENDEZVOUS_FILE OUTPUT.npz
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from open_clip import CLIP
from torch.nn.parallel import DistributedDataParallel

from repair_ray.config import TextObjectiveConfig, TextTrainingConfig
from repair_ray.training.texts.batches import TextPlan, TextSet
from repair_ray.training.texts.trainer import TextTrainer

TEXTS = 9
BATCH = 7


def run(rank: int, world_size: int, micro_batch: int | None = None) -> dict[str, np.ndarray]:
    """The losses by term, the gradients by parameter, and how many texts this worker had."""
    torch.manual_seed(0)
    model = CLIP(
        embed_dim=8,
        vision_cfg={"image_size": 16, "layers": 1, "width": 16, "head_width": 8, "patch_size": 8},
        text_cfg={"context_length": 6, "vocab_size": 50, "width": 16, "heads": 2, "layers": 2},
    )
    objective = {
        "positive_mixing": {"margin": 0.5},
        "hard_negative_mixing": {"k": 3, "pairs": 4},
        "dropout": 0.2,
        "temperature": 0.5,
    }
    trainer = TextTrainer(
        model,
        TextSet(["text"] * TEXTS, np.arange(TEXTS) // 2, np.arange(TEXTS)),
        TextTrainingConfig(steps=10, batch_size=BATCH, grad_clip=None, micro_batch=micro_batch),
        TextObjectiveConfig.model_validate(objective),
        seed=5,
        wrap=DistributedDataParallel if world_size > 1 else (lambda module: module),
    )
    tokens = torch.randint(1, 50, (TEXTS, 6), generator=torch.Generator().manual_seed(1))
    batch = TextPlan(TEXTS, BATCH, seed=2).step(1, rank, world_size)
    report = trainer.step(1, batch, tokens[batch.items])
    found = {name: np.array(loss) for name, loss in report.losses.items()}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            assert parameter.grad is not None, name
            found[f"gradient/{name}"] = parameter.grad.numpy()
    return {**found, "items": np.array(len(batch.items))}


if __name__ == "__main__":
    torch.set_num_threads(1)
    place, size = int(sys.argv[1]), int(sys.argv[2])
    dist.init_process_group("gloo", init_method=f"file://{sys.argv[3]}", rank=place, world_size=size)
    results: dict[str, Any] = dict(run(place, size))
    cached = {f"cached/{name}": value for name, value in run(place, size, 2).items()}
    np.savez(sys.argv[4], **results, **cached)
    dist.destroy_process_group()
