"""Which texts a step sees: a pure function of the seed and the step, whatever the number of workers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from torch import Tensor

from repair_ray import tables
from repair_ray.engines.encoder import Preprocess


@dataclass(frozen=True)
class TextSet:
    """Texts `[N]`; equal numbers in int64 `keys [N]` are equal texts, and in `groups [N]` texts that say the same."""

    texts: Sequence[str]
    keys: np.ndarray
    groups: np.ndarray

    def known(self, one: np.ndarray, other: np.ndarray) -> np.ndarray:
        """Which of two lists of texts are known positives, as bool `[len(one), len(other)]`."""
        same = self.keys[one][:, None] == self.keys[other][None]
        return np.asarray(same | (self.groups[one][:, None] == self.groups[other][None]))


def text_set(table: pa.Table) -> TextSet:
    """The usable texts of a `texts` table, in its order."""
    table = usable(table)
    return TextSet(table["text"].to_pylist(), _numbers(table["text_key"]), _numbers(table["group_id"]))


def usable(table: pa.Table) -> pa.Table:
    """The rows of a table that are no rejects and no errors."""
    return table.filter(pc.equal(table["status"], tables.OK))


def _numbers(column: pa.ChunkedArray) -> np.ndarray:
    return np.asarray(column.combine_chunks().dictionary_encode().indices.to_numpy(), np.int64)


@dataclass(frozen=True)
class TextBatch:
    """One worker's part of a step: its texts (item indices `[b]`), at `start` of a global batch of `total`."""

    items: np.ndarray
    start: int
    total: int


class TextPlan:
    """Deals texts out to steps. One epoch is every text once; epochs are laid end to end, so that steps are full."""

    def __init__(self, texts: int, batch_size: int, seed: int) -> None:
        self.texts = texts
        self.batch_size = min(batch_size, texts)
        self.seed = seed
        self._epoch = -1
        self._order = np.zeros(0, np.int64)

    def step(self, step: int, rank: int = 0, world_size: int = 1) -> TextBatch:
        """The batch of one worker: its contiguous share of the step's texts; shares differ by one at most.

        Raises:
            ValueError: a step has fewer texts than there are workers.
        """
        if self.batch_size < world_size:
            raise ValueError(
                f"{self.batch_size} texts a step do not go round {world_size} workers; lower training.workers"
            )
        start, stop = (end * self.batch_size // world_size for end in (rank, rank + 1))
        items = [self._item(step * self.batch_size + row) for row in range(start, stop)]
        return TextBatch(np.array(items, np.int64), start, self.batch_size)

    def _item(self, position: int) -> int:
        epoch, place = divmod(position, self.texts)
        if epoch != self._epoch:
            self._order = np.random.default_rng([self.seed, epoch]).permutation(self.texts)
            self._epoch = epoch
        return int(self._order[place])


class TextLoader:
    """Steps with their tokens, `[b, L]` int64."""

    def __init__(
        self, plan: TextPlan, texts: Sequence[str], preprocess: Preprocess, rank: int = 0, world_size: int = 1
    ) -> None:
        self._plan, self._texts, self._preprocess = plan, texts, preprocess
        self._rank, self._world_size = rank, world_size

    def step(self, number: int) -> tuple[TextBatch, Tensor]:
        """This worker's batch of a step."""
        batch = self._plan.step(number, self._rank, self._world_size)
        return batch, self._preprocess.tokens([self._texts[item] for item in batch.items.tolist()])
