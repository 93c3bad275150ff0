"""Zero-shot classification: a guard against what fine-tuning for retrieval forgets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from repair_ray.evaluation.compositional import accuracy, macro
from repair_ray.evaluation.retrieval import best_ranks

TEMPLATES = ("a photo of a {}.",)
TOP = 5


def class_texts(names: Sequence[str], templates: Sequence[str]) -> list[str]:
    """Each class in each template (`{}` stands for its name, `_` for a space): classes in order, templates within."""
    return [template.replace("{}", name.replace("_", " ")) for name in names for template in templates]


def class_features(texts: np.ndarray, classes: int) -> np.ndarray:
    """Unit vectors `[classes, D]`: the mean of the unit text features `[classes * templates, D]` of each class.

    Raises:
        ValueError: the texts do not divide over the classes.
    """
    if not classes or len(texts) % classes:
        raise ValueError(f"{len(texts)} texts do not divide over {classes} classes")
    mean = texts.reshape(classes, -1, texts.shape[1]).mean(axis=1)
    return np.asarray(mean / np.maximum(np.linalg.norm(mean, axis=1, keepdims=True), 1e-12), np.float32)


def zero_shot_metrics(images: np.ndarray, labels: np.ndarray, classes: np.ndarray) -> dict[str, Any]:
    """Top-1 and top-5 accuracy, and the mean over classes of top-1; a wrong class that ties stands above.

    Args:
        images: unit features `[N, D]`; labels: int `[N]`; classes: unit features `[C, D]`.

    Returns:
        percents with 95 % Wilson intervals; `top5` is None where there are no more than five classes.
    """
    ranks = best_ranks(images, classes, [np.array([label]) for label in labels])
    by_class = {str(label): accuracy(ranks[labels == label] == 1) for label in np.unique(labels)}
    return {
        "top1": accuracy(ranks == 1),
        "top5": accuracy(ranks <= TOP) if len(classes) > TOP else None,
        "class_mean": macro(by_class),
    }
