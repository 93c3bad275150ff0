"""Which anchors and grids a step sees: a pure function of the seed and the step, whatever the number of workers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from repair_ray.training.pairs import ABSENT, CorrectedPair, PairSet


@dataclass(frozen=True)
class Batch:
    """One worker's part of a step, every distinct item once (features are encoded once, methods section 1 step 5).

    `images [N]` and `captions [M]`: item indices. The rest are positions in those two lists, `ABSENT` where a grid has
    no such item: `anchors [B, 2]` (image, caption), `grid_images [G, 3]`, `grid_captions [G, 3]` (anchor, i2t pair, t2i
    pair), `extra [S, 2]`: the corrected pairs (without fallbacks, which are anchors elsewhere), for dispersal,
    `fine [F, 2]` (image, caption) with `negatives [F, K]`: captions that are not true of those images.
    """

    images: np.ndarray
    captions: np.ndarray
    anchors: np.ndarray
    grid_images: np.ndarray
    grid_captions: np.ndarray
    extra: np.ndarray
    fine: np.ndarray
    negatives: np.ndarray


class BatchPlan:
    """Deals anchors out to steps. One epoch is every anchor image once, with one of its captions drawn anew."""

    def __init__(self, pairs: PairSet, batch_size: int, seed: int, grid_share: float = 1.0, negatives: int = 0) -> None:
        """`negatives`: how many negative captions a step draws for a pair that has some; 0: contrasts are left out."""
        self.pairs = pairs
        self.batch_size = min(batch_size, len(pairs.anchor_images))
        self.seed = seed
        self.grid_share = grid_share
        self.negatives = negatives
        self._epoch = -1
        self._order = np.zeros(0, np.int64)

    def step(self, step: int, rank: int = 0, world_size: int = 1) -> Batch:
        """The batch of one worker: its contiguous share of the step's anchors; shares differ by one at most.

        Raises:
            ValueError: a step has fewer anchors than there are workers.
        """
        if self.batch_size < world_size:
            raise ValueError(
                f"{self.batch_size} anchors a step do not go round {world_size} workers; lower training.workers"
            )
        rows = range(rank * self.batch_size // world_size, (rank + 1) * self.batch_size // world_size)
        return self._assemble([self._anchor(step * self.batch_size + row) for row in rows])

    def _anchor(self, position: int) -> tuple[int, int, np.random.Generator]:
        # Epochs are consecutive permutations laid end to end, so that every step is full.
        epoch, place = divmod(position, len(self.pairs.anchor_images))
        if epoch != self._epoch:
            self._order = np.random.default_rng([self.seed, epoch]).permutation(self.pairs.anchor_images)
            self._epoch = epoch
        image = int(self._order[place])
        rng = np.random.default_rng([self.seed, epoch, image])
        return image, int(rng.choice(self.pairs.captions_of(image))), rng

    def _assemble(self, anchors: list[tuple[int, int, np.random.Generator]]) -> Batch:
        images, captions = _Slots(), _Slots()
        pairs, grid_images, grid_captions, extra = [], [], [], []
        fine: list[tuple[int, int]] = []
        negatives: list[list[int]] = []
        for image, caption, rng in anchors:
            pairs.append((images.place(image), captions.place(caption)))
            if self.negatives:
                for (shown, said), wrong in self.pairs.contrasts_of(caption).items():
                    fine.append((images.place(shown), captions.place(said)))
                    drawn = rng.permutation(wrong)[: self.negatives].tolist()
                    places = [captions.place(negative) for negative in drawn]
                    negatives.append(places + [ABSENT] * (self.negatives - len(places)))
            if not self.pairs.has_repair(image, caption):
                continue
            grid = self.pairs.grid_of(image, caption)
            if rng.random() >= self.grid_share * max(pair.weight for options in grid for pair in options):
                continue
            row_images, row_captions = [pairs[-1][0]], [pairs[-1][1]]
            for options in grid:
                if options:
                    chosen = _drawn(options, rng)
                    row_images.append(images.place(chosen.image))
                    row_captions.append(captions.place(chosen.caption))
                    if not chosen.fallback:
                        extra.append((row_images[-1], row_captions[-1]))
                else:
                    row_images.append(ABSENT)
                    row_captions.append(ABSENT)
            grid_images.append(row_images)
            grid_captions.append(row_captions)
        return Batch(
            images=images.array(),
            captions=captions.array(),
            anchors=np.array(pairs, np.int64).reshape(-1, 2),
            grid_images=np.array(grid_images, np.int64).reshape(-1, 3),
            grid_captions=np.array(grid_captions, np.int64).reshape(-1, 3),
            # Not made distinct: two anchors that bring the same pair count twice, on one worker as on several.
            extra=np.array(extra, np.int64).reshape(-1, 2),
            fine=np.array(fine, np.int64).reshape(-1, 2),
            negatives=np.array(negatives, np.int64).reshape(len(fine), self.negatives),
        )


def _drawn(options: list[CorrectedPair], rng: np.random.Generator) -> CorrectedPair:
    """One of them, by weight."""
    ends = np.cumsum([pair.weight for pair in options])
    if ends[-1] == len(options):
        return options[int(rng.integers(len(options)))]
    return options[int(np.searchsorted(ends, rng.random() * ends[-1], side="right"))]


class _Slots:
    """Gives each distinct item one position."""

    def __init__(self) -> None:
        self._position: dict[int, int] = {}

    def place(self, item: int) -> int:
        return self._position.setdefault(item, len(self._position))

    def array(self) -> np.ndarray:
        return np.array(list(self._position), np.int64)
