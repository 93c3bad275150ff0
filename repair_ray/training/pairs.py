"""What training reads: anchors, corrected pairs, and which of them are known positives of each other.

Everything here is arrays of indices into two item lists, images and captions. Edited items are further entries of
those lists; pictures stay in their store until a batch asks for them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

ABSENT = -1


@dataclass(frozen=True)
class CorrectedPair:
    """One repaired failure as item indices (methods, section 1, step 5).

    `i2t`: anchor is the caption that was wrongly retrieved, (`image`, `caption`) = (query image, edited caption).
    `t2i`: anchor is the image that was wrongly retrieved, (`image`, `caption`) = (edited image, query caption).
    `fallback`: the query with its own counterpart, for an anchor whose failures in this direction have no repair.
    `weight` in (0, 1]: how often it is drawn, against other pairs of its anchor and at all (ours).
    """

    direction: str
    anchor: int
    image: int
    caption: int
    fallback: bool = False
    weight: float = 1.0


@dataclass(frozen=True)
class Contrast:
    """A picture, a caption that is true of it, and one that is not, as item indices (methods, section 3, step 4).

    `anchor`: the caption that brings it into a batch; its own picture and itself, unless the picture was edited too.
    """

    anchor: int
    image: int
    caption: int
    negative: int


@dataclass
class PairSet:
    """Anchors, corrected pairs and contrasts of one training run.

    `image_group [I]` int64: items that show the same thing share a group. `caption_image [C]` int64: the image that
    owns a caption, `ABSENT` for edited captions. `caption_group [C]` int64: the group a caption describes.
    `caption_text [C]` int64: equal numbers are equal texts. `anchors` are the captions that epochs draw from.
    """

    image_group: np.ndarray
    caption_image: np.ndarray
    caption_group: np.ndarray
    caption_text: np.ndarray
    anchors: np.ndarray
    corrected: Sequence[CorrectedPair] = ()
    contrasts: Sequence[Contrast] = ()
    anchor_images: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        by_image: dict[int, list[int]] = defaultdict(list)
        for caption in self.anchors.tolist():
            by_image[int(self.caption_image[caption])].append(caption)
        self._captions = {image: np.array(captions) for image, captions in by_image.items()}
        self.anchor_images = np.array(sorted(by_image), dtype=np.int64)
        self._i2t: dict[int, list[CorrectedPair]] = defaultdict(list)
        self._t2i: dict[int, list[CorrectedPair]] = defaultdict(list)
        for pair in sorted(self.corrected, key=lambda pair: pair.fallback):
            found = (self._i2t if pair.direction == "i2t" else self._t2i)[pair.anchor]
            if not (pair.fallback and found and not found[0].fallback):
                found.append(pair)
        self._contrasts: dict[int, dict[tuple[int, int], list[int]]] = defaultdict(dict)
        for contrast in self.contrasts:
            shown = (contrast.image, contrast.caption)
            self._contrasts[contrast.anchor].setdefault(shown, []).append(contrast.negative)
        self._shared = self._groups_of_shared_texts()

    def _groups_of_shared_texts(self) -> dict[int, np.ndarray]:
        groups: dict[int, set[int]] = defaultdict(set)
        for text, group in zip(self.caption_text.tolist(), self.caption_group.tolist(), strict=True):
            groups[text].add(group)
        return {text: np.array(sorted(found)) for text, found in groups.items() if len(found) > 1}

    def captions_of(self, image: int) -> np.ndarray:
        """Anchor captions of an image."""
        return self._captions[image]

    def grid_of(self, image: int, caption: int) -> tuple[list[CorrectedPair], list[CorrectedPair]]:
        """Corrected pairs in the neighbourhood of the anchor (image, caption): those of `i2t`, those of `t2i`."""
        return self._i2t.get(caption, []), self._t2i.get(image, [])

    def contrasts_of(self, caption: int) -> dict[tuple[int, int], list[int]]:
        """The pairs (image, caption) that an anchor caption brings with their negative captions."""
        return self._contrasts.get(caption, {})

    def has_repair(self, image: int, caption: int) -> bool:
        """Whether the anchor has a grid at all."""
        return caption in self._i2t or image in self._t2i

    def known(self, images: np.ndarray, captions: np.ndarray) -> np.ndarray:
        """Which of images `[N]` and captions `[M]` are known positives: the same group, or a text that the group has.

        Returns a bool array `[N, M]`; entries of `ABSENT` items are False.
        """
        groups = np.where(images == ABSENT, -1, self.image_group[images])
        described = np.where(captions == ABSENT, -2, self.caption_group[captions])
        match = groups[:, None] == described[None, :]
        texts = np.where(captions == ABSENT, -1, self.caption_text[captions])
        for column, text in enumerate(texts.tolist()):
            if text in self._shared:
                match[:, column] |= np.isin(groups, self._shared[text])
        return match
