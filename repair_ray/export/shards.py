"""Pairs as WebDataset tar shards: ours, which open_clip's trainer reads, and TripletCLIP's.

Ours, for each pair: `.jpg` (or `.png`, by content) and `.txt` are the right pair, `.neg.jpg` and `.neg.txt` the pair
that it is hard to tell from (`.neg.txt` only where there is such a caption), `.json` is `HardPair.record()`.

TripletCLIP's (its `data.py`): `.image`, `.neg_image`, `.caption`, `.neg_caption`. It needs all four, so a pair without
`neg_caption` is left out and counted.
"""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from repair_ray.data.shards import BLOCK
from repair_ray.export.pairs import HardPair
from repair_ray.export.pictures import Read
from repair_ray.run import RunError, write_json

# What open_clip's trainer takes for a picture.
TRAINABLE = ("jpg", "png", "webp")
SIZES = "sizes.json"

# Members of one sample: suffix and content.
Sample = list[tuple[str, bytes]]


class SampleShards:
    """Writes samples of several members to `<folder>/<name>.tar`, each shard at most `max_bytes`, the end's padding
    aside, unless one sample is larger.

    The same samples in the same order give the same bytes. `sizes` counts the samples of each shard, as `sizes.json`
    beside the shards tells open_clip.
    """

    def __init__(self, folder: Path, name: str, max_bytes: int) -> None:
        """`name` has a place for the shard's number, such as `{:05d}`."""
        self._folder, self._name, self._max_bytes = folder, name, max_bytes
        self.sizes: dict[str, int] = {}
        self._file: IO[bytes] | None = None
        self._tar: tarfile.TarFile | None = None

    def add(self, key: str, sample: Sample) -> None:
        """Append a sample; `key` is unique, and has no dot."""
        size = sum(BLOCK + -(-len(content) // BLOCK) * BLOCK for _, content in sample)
        if self._tar is None or (self._file is not None and self._file.tell() + size > self._max_bytes):
            self._next()
        assert self._tar is not None
        for suffix, content in sample:
            info = tarfile.TarInfo(f"{key}.{suffix}")
            info.size, info.mode = len(content), 0o644
            self._tar.addfile(info, io.BytesIO(content))
        self.sizes[next(reversed(self.sizes))] += 1

    def close(self) -> None:
        """Finish the last shard and write `sizes.json`."""
        self._finish()
        write_json(self._folder / SIZES, self.sizes)

    def _next(self) -> None:
        self._finish()
        shard = self._name.format(len(self.sizes)) + ".tar"
        self.sizes[shard] = 0
        self._file = (self._folder / shard).open("wb")
        self._tar = tarfile.open(fileobj=self._file, mode="w", format=tarfile.USTAR_FORMAT)  # noqa: SIM115

    def _finish(self) -> None:
        if self._tar is not None and self._file is not None:
            self._tar.close()
            self._file.close()


def write_webdataset(pairs: list[HardPair], read: Read, folder: Path, max_bytes: int) -> dict[str, int]:
    """Our layout, in `00000.tar`, ... Returns the numbers of pairs and shards, and of what open_clip leaves out."""
    shards = SampleShards(folder, "{:05d}", max_bytes)
    unread = 0
    for pair in pairs:
        sample = _sample(pair, read)
        unread += sample[0][0] not in TRAINABLE
        shards.add(pair.pair_id, sample)
    shards.close()
    counts = {"pairs": len(pairs), "shards": len(shards.sizes)}
    return counts | ({"of a format that open_clip's trainer leaves out": unread} if unread else {})


def write_tripletclip(pairs: list[HardPair], read: Read, folder: Path, max_bytes: int) -> dict[str, int]:
    """TripletCLIP's layout, in `shard-0.tar`, ... as its loader names them."""
    shards = SampleShards(folder, "shard-{}", max_bytes)
    for pair, sample in _triplets(pairs, read):
        shards.add(pair.pair_id, sample)
    shards.close()
    written = sum(shards.sizes.values())
    if not written:
        raise RunError("no pair has a caption of its wrong picture, which TripletCLIP's layout needs")
    return {"pairs": written, "shards": len(shards.sizes), "without neg_caption, left out": len(pairs) - written}


def _sample(pair: HardPair, read: Read) -> Sample:
    sample: Sample = []
    for prefix, picture, caption in (("", pair.image, pair.caption), ("neg.", pair.neg_image, pair.neg_caption)):
        content, name = read(picture)
        sample.append((f"{prefix}{name.rpartition('.')[2]}", content))
        if caption is not None:
            sample.append((f"{prefix}txt", caption.text.encode()))
    told = json.dumps(pair.record(), ensure_ascii=False, sort_keys=True)
    return [*sample, ("json", told.encode())]


def _triplets(pairs: list[HardPair], read: Read) -> Iterator[tuple[HardPair, Sample]]:
    for pair in pairs:
        if pair.neg_caption is not None:
            yield (
                pair,
                [
                    ("image", read(pair.image)[0]),
                    ("neg_image", read(pair.neg_image)[0]),
                    ("caption", pair.caption.text.encode()),
                    ("neg_caption", pair.neg_caption.text.encode()),
                ],
            )
