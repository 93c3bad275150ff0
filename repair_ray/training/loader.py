"""Pictures and texts of a training run as tensors, decoded ahead in threads and cached up to a budget."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor

import torch
from torch import Tensor

from repair_ray.data.store import ImageStore
from repair_ray.engines.encoder import Preprocess
from repair_ray.training.batches import Batch, BatchPlan
from repair_ray.training.items import TrainingItems


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
        self._tokens = preprocess.tokens(list(items.texts))
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
        return batch, self._preprocess.normalise(pixels), self._tokens[torch.from_numpy(batch.captions)]

    def _pixels(self, image: int) -> Tensor:
        found = self._cache.get(image)
        if found is None:
            found = self._preprocess.pixels(self._store.rgb(*self._items.images[image]))
            if self._cache_left >= found.nbytes:
                self._cache_left -= found.nbytes
                self._cache[image] = found
        return found
