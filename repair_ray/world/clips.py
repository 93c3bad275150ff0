"""Writes a small world of signed weather reports: clip features, captions, and the truth of what looks alike (ours).

Each word has a sign, a vector. Words come in pairs that look alike: their signs differ in little, and they mean
different things. Other words mean alike and look as different as any two. A clip shows the words of its caption one
after another, some frames each, with transitions between them, a signer's own offset and noise.
"""

from __future__ import annotations

import csv
import os
import random
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from repair_ray.world.reports import REPORTS, Reports
from repair_ray.world.scene import derived_seed

SPLITS = ("train", "validation", "test")
SCHEMA = pa.schema(
    [
        ("clip_id", pa.string()),
        ("split", pa.string()),
        ("caption", pa.string()),
        ("features", pa.list_(pa.list_(pa.float32()))),
    ]
)
CLIPS, ALIKE, MEANING = "clips.parquet", "look_alike.csv", "mean_alike.csv"


@dataclass(frozen=True)
class Motion:
    """How signs become frames.

    `apart` is how far the signs of a pair that looks alike lie from each other (signs have length 1, and others are
    1.4 apart); `noise` is the deviation of each of a frame's `width` numbers, times the square root of their count;
    `signer` the length of a clip's own offset.
    """

    width: int = 128
    apart: float = 0.4
    noise: float = 0.4
    signer: float = 0.1
    frames: tuple[int, int] = (2, 4)


def make_clips(
    folder: Path,
    tongue: Literal["de", "en"],
    train: int,
    validation: int,
    test: int,
    seed: int,
    motion: Motion | None = None,
) -> None:
    """Write clips.parquet (clip_id, split, caption, features `[T, D]`), look_alike.csv and mean_alike.csv.

    The two lists hold pairs (word, other) of one place: those whose signs look alike, the truth that no retriever sees,
    and those that mean alike, whose signs look as different as any. No pair is in both. No caption is in two splits, or
    twice in one. The files depend on the arguments alone, and appear together when all are written.

    Raises:
        ValueError: more captions than the vocabulary gives, or a size below one.
    """
    words, sizes = REPORTS[tongue], dict(zip(SPLITS, (train, validation, test), strict=True))
    reports = int(np.prod([len(found) for found in words.places.values()]))
    if min(sizes.values()) < 1 or sum(sizes.values()) > reports:
        raise ValueError(f"{sizes}: each split needs a clip, and there are {reports} reports in all")
    motion = motion or Motion()
    rng = random.Random(derived_seed("clips", tongue, seed))
    alike = _look_alike(words, rng)
    signs = _signs(words, alike, motion, np.random.default_rng(derived_seed("signs", tongue, seed)))
    draw = np.random.default_rng(derived_seed("frames", tongue, seed))
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for number, report in enumerate(rng.sample(range(reports), sum(sizes.values()))):
        chosen = _report(words, report)
        rows.append(
            {
                "clip_id": f"{tongue}-{number:05d}",
                "split": SPLITS[0] if number < train else SPLITS[1] if number < train + validation else SPLITS[2],
                "caption": words.template.format(**chosen),
                "features": _frames([signs[word] for word in chosen.values()], motion, draw).tolist(),
            }
        )
    with tempfile.TemporaryDirectory(dir=folder, prefix=".clips-") as scratch:
        pq.write_table(pa.Table.from_pylist(rows, SCHEMA), Path(scratch) / CLIPS)
        _write_pairs(Path(scratch) / ALIKE, alike)
        _write_pairs(Path(scratch) / MEANING, words.meaning)
        for name in (ALIKE, MEANING, CLIPS):
            os.replace(Path(scratch) / name, folder / name)


def _look_alike(words: Reports, rng: random.Random) -> list[tuple[str, str]]:
    """All words in pairs, each within its place, none of which means alike."""
    apart = {frozenset(pair) for pair in words.meaning}
    pairs: list[tuple[str, str]] = []
    for found in words.places.values():
        while True:
            mixed = rng.sample(found, len(found))
            drawn = list(zip(mixed[::2], mixed[1::2], strict=True))
            if not any(frozenset(pair) in apart for pair in drawn):
                break
        pairs += drawn
    return pairs


def _signs(
    words: Reports, alike: list[tuple[str, str]], motion: Motion, draw: np.random.Generator
) -> dict[str, np.ndarray]:
    signs: dict[str, np.ndarray] = {}
    for one, other in alike:
        first = _unit(draw.normal(size=motion.width))
        aside = draw.normal(size=motion.width)
        aside = _unit(aside - (aside @ first) * first)
        half = motion.apart / 2
        # Both at the same distance from their middle, so that neither is the plainer one.
        signs[one], signs[other] = (_unit(first + side * half * aside) for side in (1, -1))
    return signs


def _report(words: Reports, number: int) -> dict[str, str]:
    chosen = {}
    for place, found in words.places.items():
        number, at = divmod(number, len(found))
        chosen[place] = found[at]
    return chosen


def _frames(signs: list[np.ndarray], motion: Motion, draw: np.random.Generator) -> np.ndarray:
    """Some frames of each sign, one halfway to the next, the signer's offset and noise: float32 `[T, D]`."""
    shown: list[np.ndarray] = []
    for place, sign in enumerate(signs):
        shown += [sign] * int(draw.integers(*motion.frames, endpoint=True))
        if place + 1 < len(signs):
            shown.append((sign + signs[place + 1]) / 2)
    offset = motion.signer * _unit(draw.normal(size=motion.width))
    noise = draw.normal(size=(len(shown), motion.width)) * motion.noise / np.sqrt(motion.width)
    return np.asarray(np.stack(shown) + offset + noise, np.float32)


def _unit(vector: np.ndarray) -> np.ndarray:
    return vector / np.linalg.norm(vector)


def _write_pairs(path: Path, pairs: list[tuple[str, str]] | tuple[tuple[str, str], ...]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("word", "other"), *pairs])
