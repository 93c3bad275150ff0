"""A source through one or more retrievers: pictures are opened once, prepared once a way, and never all in memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np

from repair_ray.data.duplicates import joined_groups, same_key_links
from repair_ray.data.images import pixel_hash
from repair_ray.data.records import DataError
from repair_ray.data.text import text_key
from repair_ray.evaluation.positives import known_positives
from repair_ray.evaluation.protocols import SCORES, protocol_facts
from repair_ray.measuring.sources import Source, Text

if TYPE_CHECKING:
    from PIL import Image

    from repair_ray.engines.encoder import Preprocess

CHUNK = 512

Item = TypeVar("Item")


class Encodes(Protocol):
    """What turns prepared pictures and texts into unit vectors: an `Encoder`, or a `Blend` of two."""

    @property
    def preprocess(self) -> Preprocess: ...

    def encode_pixels(self, pixels: list[Any]) -> np.ndarray: ...

    def encode_texts(self, texts: list[str]) -> np.ndarray: ...


@dataclass
class Seen:
    """What was in a source, in file order: ids, names and groups of images, captions, and whose each caption is."""

    split: str
    path: str
    images: list[str] = field(default_factory=list)
    image_names: list[tuple[str, ...]] = field(default_factory=list)
    groups: list[str] = field(default_factory=list)
    pixels: list[str] = field(default_factory=list)
    captions: list[Text] = field(default_factory=list)
    owners: list[int] = field(default_factory=list)
    unused: dict[str, Any] = field(default_factory=dict)

    def own(self) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Each image's own captions, and each caption's own image, as places."""
        owners = np.array(self.owners, np.int64)
        bounds = np.searchsorted(owners, np.arange(len(self.images) + 1))
        captions = [np.arange(start, end) for start, end in pairwise(bounds.tolist())]
        return captions, [np.array([owner]) for owner in self.owners]

    def known(self) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """All that is known to be right: by group, by equal text and by equal pixels, as a run counts."""
        groups = joined_groups(self.groups, same_key_links(self.pixels))
        of_image, of_caption = known_positives(
            zip(self.images, groups, strict=True),
            [
                (caption.identity, groups[owner], text_key(caption.text))
                for caption, owner in zip(self.captions, self.owners, strict=True)
            ],
        )
        image = {identity: n for n, identity in enumerate(self.images)}
        caption = {text.identity: n for n, text in enumerate(self.captions)}
        return (
            [np.array(sorted(caption[c] for c in of_image[i]), np.int64) for i in self.images],
            [np.array(sorted(image[i] for i in of_caption[c.identity]), np.int64) for c in self.captions],
        )

    def protocol(self) -> dict[str, Any]:
        """The facts that go with every figure on this source."""
        return {
            **protocol_facts(
                self.split,
                self.images,
                [(caption.identity, caption.text) for caption in self.captions],
                np.bincount(self.owners, minlength=len(self.images)).tolist(),
            ),
            "read_from": self.path,
            "unused": self.unused,
            "scores": SCORES,
        }


@dataclass(frozen=True)
class Features:
    """Unit vectors of a source: float32 `[images, D]` and `[captions, D]`."""

    images: np.ndarray
    captions: np.ndarray


def encode(source: Source, encoders: Sequence[Encodes]) -> tuple[Seen, list[Features]]:
    """Go through a source once; returns what was in it and its features by each encoder.

    Raises:
        DataError: no picture can be opened, or none has a caption.
    """
    seen = Seen(source.split, source.path)
    parts: list[list[np.ndarray]] = [[] for _ in encoders]
    for chunk in chunks(source.items(), CHUNK):
        for item in chunk:
            seen.owners += [len(seen.images)] * len(item.captions)
            seen.captions += item.captions
            seen.images.append(item.identity)
            seen.image_names.append(item.names)
            seen.groups.append(item.group or item.identity)
            seen.pixels.append(pixel_hash(item.picture))
        for part, features in zip(parts, encode_pictures([item.picture for item in chunk], encoders), strict=True):
            part.append(features)
    seen.unused = source.unused.facts()
    if not seen.images:
        raise DataError(f"no picture of {source.path} can be used: {source.unused.examples()}")
    if not seen.captions:
        raise DataError(f"no picture of {source.path} has a caption")
    texts = [caption.text for caption in seen.captions]
    return seen, [
        Features(np.concatenate(part), encoder.encode_texts(texts))
        for part, encoder in zip(parts, encoders, strict=True)
    ]


def encode_pictures(pictures: list[Image.Image], encoders: Sequence[Encodes]) -> list[np.ndarray]:
    """Features of some pictures by each encoder; encoders that share their preprocessing share its result."""
    prepared: dict[int, list[Any]] = {}
    found = []
    for encoder in encoders:
        preprocess = encoder.preprocess
        if id(preprocess) not in prepared:
            prepared[id(preprocess)] = [preprocess.pixels(picture) for picture in pictures]
        found.append(encoder.encode_pixels(prepared[id(preprocess)]))
    return found


def chunks(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Lists of at most `size` items."""
    iterator = iter(items)
    while chunk := list(islice(iterator, size)):
        yield chunk
