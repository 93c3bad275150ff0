"""Near duplicates against a brute force, and what the perceptual hash forgives."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image, ImageDraw

from repair_ray.data import duplicates
from repair_ray.data.duplicates import (
    components,
    cross_links,
    cross_near,
    joined_groups,
    near_pairs,
    perceptual_hash,
    same_key_links,
)


def picture(seed: int) -> Image.Image:
    rng = np.random.default_rng(seed)
    image = Image.new("RGB", (120, 90), tuple(rng.integers(0, 255, 3).tolist()))
    draw = ImageDraw.Draw(image)
    for _ in range(8):
        x, y, w, h = rng.integers(0, 80, 4).tolist()
        draw.rectangle((x, y, x + w, y + h), fill=tuple(rng.integers(0, 255, 3).tolist()))
    return image


@pytest.mark.parametrize("small", [20_000, 10])
@pytest.mark.parametrize("bits", [1, 3, 4, 7])
def test_pairs_are_those_of_a_brute_force(monkeypatch: pytest.MonkeyPatch, bits: int, small: int) -> None:
    monkeypatch.setattr(duplicates, "_SMALL", small)  # beyond it, another index and many chunks
    rng = np.random.default_rng(3)
    values = set(rng.integers(0, 2**63, 40).tolist())
    for value in sorted(values):
        for flips in range(1, 9):
            made = value
            for place in rng.choice(63, flips, replace=False).tolist():
                made ^= 1 << place
            values.add(made)
    ordered = sorted(values)
    expected = [
        [a, b, (ordered[a] ^ ordered[b]).bit_count()]
        for a in range(len(ordered))
        for b in range(a + 1, len(ordered))
        if (ordered[a] ^ ordered[b]).bit_count() <= bits
    ]
    assert len(expected) > 40
    assert near_pairs([f"{value:016x}" for value in ordered], bits).tolist() == expected


def test_bits_out_of_range_are_refused() -> None:
    with pytest.raises(ValueError, match="bits=8"):
        near_pairs(["0" * 16, "1" * 16], 8)
    assert near_pairs(["0" * 16], 4).shape == (0, 3)


def test_another_size_and_encoding_of_a_picture_is_near_and_other_pictures_are_not() -> None:
    originals = [picture(seed) for seed in range(6)]
    buffer = io.BytesIO()
    originals[0].resize((60, 45)).save(buffer, "JPEG", quality=80)
    hashes = [perceptual_hash(image) for image in [*originals, Image.open(buffer)]]
    assert [pair[:2] for pair in near_pairs([h for h in hashes if h], 4).tolist()] == [[0, 6]] or hashes[0] == hashes[6]
    assert len({h for h in hashes[:6]}) == 6


def test_a_picture_without_structure_has_no_hash() -> None:
    assert perceptual_hash(Image.new("RGB", (30, 30), (10, 200, 30))) is None


def test_links_and_components_by_hand() -> None:
    links = same_key_links(["a", None, "b", "a", None, "b", "a"])
    assert links == [(0, 3), (2, 5), (0, 6)]
    label = components(7, [*links, (6, 1)])
    assert label[0] == label[3] == label[6] == label[1]
    assert len({label[0], label[2], label[4]}) == 3
    assert components(3, []).tolist() == [0, 1, 2]


def test_groups_are_joined_as_a_whole() -> None:
    groups = ["d", "a", "c", "c", "b", "e"]
    assert joined_groups(groups, [(0, 2), (3, 4)]) == ["b", "a", "b", "b", "b", "e"]
    assert joined_groups(groups, []) == groups


def test_links_across_two_lists() -> None:
    assert cross_links(["a", None, "b", "c"], ["b", "c", "b", None]) == [(2, 0), (3, 1)]


@pytest.mark.parametrize("bits", [0, 2, 5])
def test_the_nearest_across_two_lists_is_that_of_a_brute_force(bits: int) -> None:
    draw = np.random.default_rng(1)
    base = [int(value) for value in draw.integers(0, 2**63, 12)]
    near = [value ^ (1 << int(draw.integers(64))) ^ (1 << int(draw.integers(64))) for value in base]
    one = [f"{value:016x}" for value in base] + [None]
    other = [None, *(f"{value:016x}" for value in near[:8]), one[2], one[2]]
    expected = []
    for place, name in enumerate(one):
        found = [
            ((int(name, 16) ^ int(there, 16)).bit_count(), spot)
            for spot, there in enumerate(other)
            if name is not None and there is not None
        ]
        if found and min(found)[0] <= bits:
            expected.append((place, min(found)[1], min(found)[0]))
    assert cross_near(one, other, bits) == expected and expected
