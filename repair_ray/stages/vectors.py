"""Finished embeddings as arrays. Apart from `embed`, so that stages which only read them load no model library."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import dataset

from repair_ray import tables
from repair_ray.engines.searcher import check_unit
from repair_ray.run import Run, RunError

BATCH_ROWS = 16_384


@dataclass(frozen=True)
class Embedded:
    """Embeddings of one kind and split, as arrays in the order of their ids: ids `[N]`, features `[N, D]` float32."""

    ids: list[str]
    features: np.ndarray


def read_embeddings(run: Run, product: str, kind: str, split: str) -> Embedded:
    """The finished embeddings of one kind and split; rows with errors are left out.

    Raises:
        RunError: there is none.
    """
    ids = embedded_ids(run, product, kind, split)
    features: np.ndarray | None = None
    done = 0
    for _, vectors in _vectors(run, product, kind, split):
        if features is None:
            features = np.empty((len(ids), vectors.shape[1]), np.float32)
        features[done : done + len(vectors)] = vectors
        done += len(vectors)
    assert features is not None
    return Embedded(ids.to_pylist(), features)


def embedded_ids(run: Run, product: str, kind: str, split: str) -> pa.Array:
    """The ids of the finished embeddings of one kind and split, in order.

    Raises:
        RunError: there is none.
    """
    found = run.read(product, ["item_id"], _wanted(kind, split))["item_id"].combine_chunks()
    if not len(found):
        raise RunError(f"{product}: no {kind} of split {split!r} was embedded; its rows say why")
    return found


def pack(run: Run, product: str, kind: str, split: str, ids: pa.Array, path: Path) -> int:
    """Write the vectors of these ids, in the table's order, as a `.npy` file `[N, D]` float32; returns D.

    Raises:
        RunError: a vector is not of unit length or of another dimension; names its item.
    """
    temporary = path.with_suffix(".tmp")
    width, done = 0, 0
    with temporary.open("wb") as file:
        for items, vectors in _vectors(run, product, kind, split):
            kept = pc.is_in(items, ids).to_numpy(zero_copy_only=False)
            vectors = vectors[kept]
            if not len(vectors):
                continue
            if not width:
                width = vectors.shape[1]
                header = {"descr": "<f4", "fortran_order": False, "shape": (len(ids), width)}
                np.lib.format.write_array_header_1_0(file, header)
            if vectors.shape[1] != width:
                raise RunError(f"{product}: vectors of {width} and of {vectors.shape[1]} numbers in one table")
            try:
                check_unit(vectors, f"the {kind} vectors of {product}", done)
            except ValueError as error:
                raise RunError(str(error)) from None
            vectors.tofile(file)
            done += len(vectors)
    if done != len(ids):
        raise RunError(f"{product}: {len(ids) - done} of {len(ids)} {kind} vectors are missing")
    os.replace(temporary, path)
    return width


def _wanted(kind: str, split: str) -> pc.Expression:
    return (pc.field("kind") == kind) & (pc.field("split") == split) & (pc.field("status") == tables.OK)


def _vectors(run: Run, product: str, kind: str, split: str) -> Iterator[tuple[pa.Array, np.ndarray]]:
    """Ids and vectors `[n, D]` float32 of one kind and split, from one row group of a file at a time."""
    where = _wanted(kind, split)
    for fragment in dataset.dataset(run.parts(product)).get_fragments(where):
        for group in fragment.split_by_row_group(where):
            batches = group.to_batches(
                columns=["item_id", "vector"], filter=where, batch_size=BATCH_ROWS, batch_readahead=1
            )
            for batch in batches:
                if len(batch):
                    flat = batch["vector"].flatten().to_numpy(zero_copy_only=False)
                    yield batch["item_id"], flat.astype(np.float32, copy=False).reshape(len(batch), -1)
