"""Pictures and texts of a training run as tensors, decoded ahead in threads and cached up to a budget."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor

from repair_ray.data.store import ImageStore
from repair_ray.engines.encoder import Preprocess
from repair_ray.training.batches import Batch, BatchPlan
from repair_ray.training.pairs import CorrectedPair, PairSet

Reference = tuple[str, int | None, int | None]


@dataclass(frozen=True)
class TrainingItems:
    """The item lists that a `PairSet` indexes: where each picture lies, and each text."""

    images: Sequence[Reference]
    texts: Sequence[str]


def write_items(path: str, items: TrainingItems, pairs: PairSet) -> None:
    """Keep a training set beside its run, so that workers on any node read the same one. Three Parquet files."""
    images = {
        "uri": [ref[0] for ref in items.images],
        "offset": pa.array([ref[1] for ref in items.images], pa.int64()),
        "length": pa.array([ref[2] for ref in items.images], pa.int64()),
        "group": pairs.image_group,
    }
    texts = {
        "text": list(items.texts),
        "image": pairs.caption_image,
        "group": pairs.caption_group,
        "key": pairs.caption_text,
        "anchor": np.isin(np.arange(len(items.texts)), pairs.anchors),
    }
    corrected = {
        "direction": pa.array([pair.direction for pair in pairs.corrected], pa.string()),
        **{
            name: pa.array([getattr(pair, name) for pair in pairs.corrected], pa.int64())
            for name in ("anchor", "image", "caption")
        },
        "fallback": pa.array([pair.fallback for pair in pairs.corrected], pa.bool_()),
    }
    for name, columns in (("images", images), ("texts", texts), ("corrected", corrected)):
        pq.write_table(pa.table(columns), f"{path}/{name}.parquet")


def read_items(path: str) -> tuple[TrainingItems, PairSet]:
    """Read what `write_items` wrote."""
    images, texts, corrected = (pq.read_table(f"{path}/{name}.parquet") for name in ("images", "texts", "corrected"))
    references = list(zip(*(images[name].to_pylist() for name in ("uri", "offset", "length")), strict=True))
    pairs = PairSet(
        image_group=images["group"].to_numpy(),
        caption_image=texts["image"].to_numpy(),
        caption_group=texts["group"].to_numpy(),
        caption_text=texts["key"].to_numpy(),
        anchors=np.flatnonzero(texts["anchor"].to_numpy()),
        corrected=[CorrectedPair(**row) for row in corrected.to_pylist()],
    )
    return TrainingItems(references, texts["text"].to_pylist()), pairs


class BatchLoader:
    """Steps in order, each with its pixels and tokens; the next step is decoded while this one trains.

    A picture that was readable when the run began and is not any more stops training: its `ImageProblem` is raised.
    """

    def __init__(
        self,
        plan: BatchPlan,
        items: TrainingItems,
        store: ImageStore,
        preprocess: Preprocess,
        *,
        rank: int = 0,
        world_size: int = 1,
        cache_bytes: int = 512 * 2**20,
        threads: int = 2,
    ) -> None:
        self._plan, self._items, self._store, self._preprocess = plan, items, store, preprocess
        self._rank, self._world_size = rank, world_size
        self._cache: dict[int, Tensor] = {}
        self._cache_left = cache_bytes
        self._decoders = ThreadPoolExecutor(threads)
        self._ahead = ThreadPoolExecutor(1)
        self._next: tuple[int, Future[tuple[Batch, Tensor, Tensor]]] | None = None

    def step(self, number: int) -> tuple[Batch, Tensor, Tensor]:
        """This worker's batch of a step: the plan, normalised pixels `[N, 3, H, W]`, tokens `[M, L]`."""
        waiting = self._next
        ready = waiting[1].result() if waiting and waiting[0] == number else self._load(number)
        self._next = (number + 1, self._ahead.submit(self._load, number + 1))
        return ready

    def close(self) -> None:
        """Stop the threads."""
        self._ahead.shutdown(cancel_futures=True)
        self._decoders.shutdown(cancel_futures=True)

    def _load(self, number: int) -> tuple[Batch, Tensor, Tensor]:
        batch = self._plan.step(number, self._rank, self._world_size)
        pixels = torch.stack(list(self._decoders.map(self._pixels, batch.images.tolist())))
        tokens = self._preprocess.tokens([self._items.texts[caption] for caption in batch.captions])
        return batch, self._preprocess.normalise(pixels), tokens

    def _pixels(self, image: int) -> Tensor:
        found = self._cache.get(image)
        if found is None:
            found = self._preprocess.pixels(self._store.rgb(*self._items.images[image]))
            if self._cache_left >= found.nbytes:
                self._cache_left -= found.nbytes
                self._cache[image] = found
        return found
