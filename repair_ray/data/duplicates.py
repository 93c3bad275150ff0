"""Which pictures are the same, or nearly: by equal keys, and by perceptual hashes that differ in few bits."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import faiss
import imagehash
import numpy as np
from PIL import Image
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

BITS = 64
MAX_BITS = 7
# Below this deviation of its grey values a picture has no structure that a hash could tell.
_FLAT = 2.0
# Four parts of 16 bits: hashes that differ in at most 7 bits differ in at most one bit of some part.
_PARTS = 4
_SMALL = 20_000


def perceptual_hash(image: Image.Image) -> str | None:
    """The 64-bit pHash of an RGB picture as 16 hex digits; None for a picture without structure.

    Equal or near for the same picture in other sizes and encodings. It sees grey values only, so that drawings which
    differ in a colour alone are near too.
    """
    grey = image.convert("L")
    if float(np.asarray(grey, np.float32).std()) < _FLAT:
        return None
    return str(imagehash.phash(grey))


def near_pairs(hashes: Sequence[str], bits: int) -> np.ndarray:
    """Pairs of different hashes that differ in at most `bits` bits: int64 `[P, 3]`, first and second place, distance.

    Args:
        hashes: `[N]` different strings of 16 hex digits.
        bits: 0 to 7, within which the search is exact.

    Raises:
        ValueError: `bits` is out of range.
    """
    if not 0 <= bits <= MAX_BITS:
        raise ValueError(f"bits={bits}: near duplicates are found within 0 to {MAX_BITS} bits")
    if len(hashes) < 2 or bits == 0:
        return np.zeros((0, 3), np.int64)
    codes = np.frombuffer(bytes.fromhex("".join(hashes)), np.uint8).reshape(len(hashes), BITS // 8)
    index: Any
    if len(hashes) <= _SMALL:
        index = faiss.IndexBinaryFlat(BITS)
    else:
        index = faiss.IndexBinaryMultiHash(BITS, _PARTS, BITS // _PARTS)
        index.nflip = bits // _PARTS
    index.add(codes)
    found = []
    for start in range(0, len(codes), _SMALL):
        # faiss takes distances below the radius.
        limits, distances, places = index.range_search(codes[start : start + _SMALL], bits + 1)
        counts = np.asarray(limits[1:], np.int64) - np.asarray(limits[:-1], np.int64)
        first = np.repeat(np.arange(len(counts)), counts) + start
        upper = places > first
        found.append(np.stack([first[upper], places[upper], distances[upper].astype(np.int64)], axis=1))
    pairs = np.concatenate(found)
    return pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))]


def components(size: int, links: Iterable[tuple[int, int]]) -> np.ndarray:
    """Labels int `[size]`: equal for the items that links join, directly or through others."""
    joined = np.array(list(links), np.int64).reshape(-1, 2)
    graph = coo_array((np.ones(len(joined), np.int8), (joined[:, 0], joined[:, 1])), shape=(size, size))
    return connected_components(graph, directed=False)[1]


def joined_groups(groups: Sequence[str], links: Iterable[tuple[int, int]]) -> list[str]:
    """The group of each item once linked items are in one group, with all of theirs: the least name of those joined."""
    label = components(len(groups), [*links, *same_key_links(groups)]).tolist()
    least: dict[int, str] = {}
    for group, place in zip(groups, label, strict=True):
        least[place] = min(group, least.get(place, group))
    return [least[place] for place in label]


def same_key_links(keys: Sequence[Hashable | None]) -> list[tuple[int, int]]:
    """Links from each item to the first with the same key; None is no key."""
    first: dict[Hashable, int] = {}
    return [
        (first[key], place)
        for place, key in enumerate(keys)
        if key is not None and first.setdefault(key, place) != place
    ]


def cross_links(one: Sequence[Hashable | None], other: Sequence[Hashable | None]) -> list[tuple[int, int]]:
    """From each item of `one` to the first of `other` with the same key, as places; None is no key."""
    first: dict[Hashable, int] = {}
    for place, key in enumerate(other):
        if key is not None:
            first.setdefault(key, place)
    return [(place, first[key]) for place, key in enumerate(one) if key is not None and key in first]


def cross_near(one: Sequence[str | None], other: Sequence[str | None], bits: int) -> list[tuple[int, int, int]]:
    """From each item of `one` to the nearest of `other` by perceptual hash, with the bits that differ: `bits` at most.

    Of equally near ones the first. Raises ValueError as `near_pairs`.
    """
    best = {place: (0, nearest) for place, nearest in cross_links(one, other)}
    names = sorted({name for name in [*one, *other] if name is not None})
    here, there = _places(one), _places(other)
    for first, second, distance in near_pairs(names, bits).tolist():
        for a, b in ((names[first], names[second]), (names[second], names[first])):
            if a in here and b in there:
                for place in here[a]:
                    best[place] = min(best.get(place, (distance, there[b][0])), (distance, there[b][0]))
    return [(place, nearest, distance) for place, (distance, nearest) in sorted(best.items())]


def _places(names: Sequence[str | None]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for place, name in enumerate(names):
        if name is not None:
            found.setdefault(name, []).append(place)
    return found
