"""What a retrieval figure was measured on, as facts that go with it; and the protocols of known benchmarks."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from repair_ray.evaluation.retrieval import TIE_RULE, retrieval_metrics

SCORES = "float32"
FOLD = 1000


@dataclass(frozen=True)
class Protocol:
    """A benchmark's way of measuring: how many pictures it has, and how many make a fold (None: all at once)."""

    name: str
    images: int | None = None
    fold: int | None = None


PROTOCOLS = {
    protocol.name: protocol
    for protocol in (
        Protocol("full"),
        Protocol("flickr30k-1k", images=1000),
        Protocol("coco-5k", images=5000),
        Protocol("coco-1k", images=5000, fold=FOLD),
    )
}


def protocol_facts(
    split: str, images: Sequence[str], captions: Iterable[tuple[str, str]], counts: Sequence[int]
) -> dict[str, Any]:
    """What the queries and the gallery were.

    Args:
        images: their ids.
        captions: id and text of each.
        counts: how many captions each image has.
    """
    captions = list(captions)
    return {
        "split": split,
        "images": len(images),
        "captions": len(captions),
        "captions_per_image": {
            "min": int(min(counts)),
            "mean": round(float(np.mean(counts)), 3),
            "max": int(max(counts)),
        },
        "split_hash": split_hash(images, captions),
        "ties": TIE_RULE,
    }


def split_hash(images: Iterable[str], captions: Iterable[tuple[str, str]]) -> str:
    """16 hex digits, equal for the same image ids and the same captions (id and text), in any order."""
    digest = hashlib.sha256()
    for kind, lines in (("image", sorted(images)), ("caption", sorted(f"{i}\x1f{text}" for i, text in captions))):
        for line in lines:
            digest.update(f"{kind}\x1f{line}\x1e".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()[:16]


def folds(images: int, size: int = FOLD) -> list[slice]:
    """Consecutive images in file order, `size` a fold; the last is shorter where pictures are missing.

    Raises:
        ValueError: fewer than two folds.
    """
    made = [slice(start, min(start + size, images)) for start in range(0, images, size)]
    if len(made) < 2:
        raise ValueError(f"{images} images make no two folds of {size}: take the full protocol")
    return made


def fold_metrics(
    images: np.ndarray,
    captions: np.ndarray,
    captions_of_image: Sequence[np.ndarray],
    images_of_caption: Sequence[np.ndarray],
    owners: np.ndarray,
    size: int = FOLD,
    *,
    bootstrap: int = 1000,
    seed: int = 0,
) -> dict[str, Any]:
    """Metrics of each fold, and their mean: COCO's "5-fold 1k".

    A fold holds its images and their captions, and nothing else counts in it.

    Args:
        images, captions: unit features `[N, D]`, `[M, D]`, images in file order.
        captions_of_image, images_of_caption: the positives, as places.
        owners: int `[M]`, the image that each caption was written for.

    Returns:
        `{"i2t": {...}, "t2i": {...}, "folds": [...]}`; the means carry no interval, since folds are no sample.

    Raises:
        ValueError: fewer than two folds, or a fold where no query has a positive.
    """
    parts = []
    for part in folds(len(images), size):
        inside = np.flatnonzero((owners >= part.start) & (owners < part.stop))
        place = {int(caption): n for n, caption in enumerate(inside)}
        parts.append(
            retrieval_metrics(
                images[part],
                captions[inside],
                [np.array([place[c] for c in own.tolist() if c in place], np.int64) for own in captions_of_image[part]],
                [_within(images_of_caption[n], part) - part.start for n in inside.tolist()],
                bootstrap=bootstrap,
                seed=seed,
            )
        )
    return {**{d: _mean([found[d] for found in parts]) for d in ("i2t", "t2i")}, "folds": parts}


def _within(places: np.ndarray, part: slice) -> np.ndarray:
    return places[(places >= part.start) & (places < part.stop)]


def _mean(found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    counted = ("n", "skipped")
    means = {
        name: round(float(np.mean([fold[name] for fold in found])), 3)
        for name in found[0]
        if name not in (*counted, "r@1_ci")
    }
    return {**means, **{name: sum(fold[name] for fold in found) for name in counted}}
