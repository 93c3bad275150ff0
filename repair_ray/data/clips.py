"""Precomputed clip features, `[T, D]` a clip with its captions: sign language video never fits as one picture.

Features come as a Parquet (clip_id, features, and usually split and caption), or as a folder with one safetensors file
a clip; captions as columns of that Parquet, or as a CSV, TSV, JSON lines or Parquet of their own.
"""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors

from repair_ray.data.files import expand, filesystem, open_text, root_of
from repair_ray.data.readers.json_stream import lines
from repair_ray.data.records import DataError, Problem, canonical_split, clean_captions

FEATURES = ("features", "feature", "frames")
CAPTIONS = ("captions", "caption", "text", "translation", "gloss")
TENSORS = ".safetensors"
ROWS = 64


@dataclass(frozen=True)
class Clip:
    """One clip: float32 features `[T, D]` of its frames, in order, its captions (at least one) and its split."""

    clip_id: str
    split: str
    captions: tuple[str, ...]
    features: np.ndarray


@dataclass
class ClipSet:
    """Clips of one feature width, in file order, and the rows that could not be used."""

    clips: list[Clip]
    problems: list[Problem] = field(default_factory=list)

    @property
    def width(self) -> int:
        """D."""
        return int(self.clips[0].features.shape[1])

    def of(self, split: str) -> list[Clip]:
        """The clips of a split. Raises DataError where there is none; names those that there are."""
        found = [clip for clip in self.clips if clip.split == split]
        if not found:
            there = Counter(clip.split for clip in self.clips)
            names = ", ".join(f"{name} ({count})" for name, count in there.most_common())
            raise DataError(f"no clip of split {split!r}; splits found: {names}")
        return found

    def reasons(self) -> dict[str, int]:
        """How many rows could not be used, by reason."""
        return dict(Counter(problem.reason for problem in self.problems))


@dataclass
class _Told:
    """What a row of captions tells of a clip."""

    captions: list[str]
    split: str | None
    source: str


def read_clips(path: str, captions: str | None = None, like: ClipSet | None = None) -> ClipSet:
    """Clips with their captions. All features are held in memory, as float32.

    Rows of one clip in the captions' file are joined. Problems: `no_frames`, `not_finite`, `bad_features` (no numbers,
    or frames of different widths), `duplicate_id` (the first clip of an id counts), `no_caption`, `no_split`, and
    `no_features` (captions of a clip that has none).

    Args:
        path: a Parquet, several (folder, glob), or a folder of `<clip_id>.safetensors`, whose one tensor is `[T, D]`.
        captions: a file with clip_id, caption (or captions) and split; left out where `path` has these columns.
        like: clips whose captions and splits are taken, by id, where `path` holds other features of them.

    Raises:
        DataError: nothing to read, a column that is missing, features of two widths, or no clip that can be used.
    """
    files = expand(path)
    tensors = [file for file in files if file.endswith(TENSORS)]
    if not files or (tensors and captions is None and like is None):
        need = "safetensors hold no captions: name their file (data.captions)" if tensors else "there is no file"
        raise DataError(f"{path}: {need}")
    told = _read_captions(captions) if captions is not None else None
    if like is not None:
        told = {clip.clip_id: _Told(list(clip.captions), clip.split, path) for clip in like.clips}
    rows = _tensor_rows(path, tensors) if tensors else _parquet_rows(files, told is None)
    made = ClipSet([])
    seen: set[str] = set()
    widths: dict[int, str] = {}
    for identity, features, own, source in rows:
        about = own if told is None else told.get(identity)
        problem = _fault(identity, features, about, seen)
        seen.add(identity)
        if problem is not None:
            made.problems.append(Problem(source, *problem))
            continue
        assert isinstance(features, np.ndarray) and about is not None and about.split is not None
        widths.setdefault(features.shape[1], identity)
        if len(widths) > 1:
            (one, first), (two, second) = list(widths.items())[:2]
            raise DataError(
                f"{path}: clip {first!r} has features of width {one}, clip {second!r} of width {two}: "
                "they come from different encoders"
            )
        made.clips.append(Clip(identity, about.split, tuple(about.captions), features))
    for identity, about in (told or {}).items():
        if identity not in seen:
            made.problems.append(Problem(about.source, "no_features", f"there are no features of clip {identity!r}"))
    if not made.clips:
        raise DataError(f"{path} holds no clip that can be used: {made.reasons() or 'there is no row'}")
    return made


def _fault(identity: str, features: np.ndarray | str, about: _Told | None, seen: set[str]) -> tuple[str, str] | None:
    if identity in seen:
        return "duplicate_id", f"clip {identity!r} is there twice"
    if isinstance(features, str):
        return "bad_features", features
    if not features.shape[0] or not features.shape[1]:
        return "no_frames", f"features of shape {features.shape}"
    if not np.isfinite(features).all():
        return "not_finite", "features hold NaN or infinity"
    if about is None or not about.captions:
        return "no_caption", f"there is no caption of clip {identity!r}"
    if about.split is None:
        return "no_split", "no split is named"
    return None


def _tensor_rows(path: str, files: list[str]) -> Iterator[tuple[str, np.ndarray | str, None, str]]:
    root = root_of(path, files)
    for file in files:
        where, inner = filesystem(file)
        try:
            with where.open_input_stream(inner) as stream:
                tensors = load_tensors(bytes(stream.readall()))
        except (OSError, SafetensorError, KeyError, TypeError, AttributeError) as error:
            yield file[len(root) : -len(TENSORS)], f"no tensor of numbers that numpy knows: {error}", None, file
            continue
        found: np.ndarray | str = f"{len(tensors)} tensors where one is needed"
        if len(tensors) == 1:
            found = _as_frames(next(iter(tensors.values())))
        yield file[len(root) : -len(TENSORS)], found, None, file


def _parquet_rows(files: list[str], with_captions: bool) -> Iterator[tuple[str, np.ndarray | str, _Told | None, str]]:
    for file in files:
        where, inner = filesystem(file)
        try:
            parquet = pq.ParquetFile(where.open_input_file(inner))
        except (OSError, pa.ArrowInvalid) as error:
            raise DataError(f"cannot read {file} as Parquet: {error}") from None
        names = parquet.schema_arrow.names
        features = _column(names, FEATURES, file)
        caption = _column(names, CAPTIONS, file) if with_captions else None
        _column(names, ("clip_id",), file)
        columns = [name for name in ("clip_id", features, caption, "split") if name in names]
        number = 0
        for batch in parquet.iter_batches(ROWS, columns=columns):
            table = pa.Table.from_batches([batch])
            others = table.drop_columns([features]).to_pylist()
            for row, frames in zip(others, table[features], strict=True):
                source = f"{file}:{number}"
                number += 1
                about = None
                if caption is not None:
                    about = _Told(clean_captions(row[caption]), canonical_split(row.get("split")), source)
                yield str(row["clip_id"]), _frames(frames), about, source


def _frames(value: pa.Scalar) -> np.ndarray | str:
    """float32 `[T, D]` of a list of lists of numbers, or why there are none."""
    if not value.is_valid:
        return np.zeros((0, 0), np.float32)
    frames = value.values
    kind = frames.type
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)):
        return f"features are a list of {kind}; a list of lists of numbers is needed"
    widths = set(frames.value_lengths().to_pylist()) if not pa.types.is_fixed_size_list(kind) else {kind.list_size}
    if len(widths) > 1 or None in widths or frames.null_count:
        return "its frames are of different widths"
    flat = frames.flatten()
    if not (pa.types.is_floating(flat.type) or pa.types.is_integer(flat.type)):
        return f"features are of {flat.type}; numbers are needed"
    numbers = flat.to_numpy(zero_copy_only=False).astype(np.float32)
    return numbers.reshape(len(frames), widths.pop() if widths else 0)


def _as_frames(tensor: np.ndarray) -> np.ndarray | str:
    if tensor.ndim != 2 or tensor.dtype.kind not in "fiu":
        return f"a tensor of shape {tensor.shape} and type {tensor.dtype}; [T, D] of numbers is needed"
    return np.asarray(tensor, np.float32)


def _column(names: list[str], wanted: tuple[str, ...], file: str) -> str:
    found = next((name for name in wanted if name in names), None)
    if found is None:
        raise DataError(f"{file} has no column {' or '.join(wanted)}; found: {', '.join(names)}")
    return found


def _read_captions(path: str) -> dict[str, _Told]:
    found: dict[str, _Told] = {}
    for number, row in enumerate(_caption_rows(path)):
        caption = _column(list(row), CAPTIONS, path)
        _column(list(row), ("clip_id",), path)
        identity, split = str(row["clip_id"]), canonical_split(row.get("split"))
        told = found.setdefault(identity, _Told([], split, f"{path}:{number}"))
        if split != told.split:
            raise DataError(f"{path}: clip {identity!r} is of split {told.split!r} and of {split!r}")
        told.captions += [text for text in clean_captions(row[caption]) if text not in told.captions]
    if not found:
        raise DataError(f"{path} holds no caption")
    return found


def _caption_rows(path: str) -> Iterator[dict[str, Any]]:
    if path.endswith(".parquet"):
        where, inner = filesystem(path)
        try:
            yield from pq.read_table(inner, filesystem=where).to_pylist()
        except (OSError, pa.ArrowInvalid) as error:
            raise DataError(f"cannot read {path} as Parquet: {error}") from None
    elif path.endswith((".jsonl", ".json")):
        for number, row in enumerate(lines(path), start=1):
            if not isinstance(row, dict):
                raise DataError(f"{path}, line {number}: an object is needed ({json.dumps(str(row))[:80]})")
            yield row
    else:
        with open_text(path) as text:
            head = text.readline()
            separator = max(("\t", "|", ";", ","), key=head.count)
            names = [name.strip() for name in next(csv.reader([head], delimiter=separator), [])]
            for row in csv.reader(text, delimiter=separator):
                if row:
                    yield dict(zip(names, row, strict=False))
