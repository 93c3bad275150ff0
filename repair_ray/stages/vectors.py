"""Finished embeddings as arrays. Apart from `embed`, so that stages which only read them load no model library."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow.compute as pc

from repair_ray import tables
from repair_ray.run import Run, RunError


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
    table = run.read(product)
    wanted = pc.and_(
        pc.and_(pc.equal(table["kind"], kind), pc.equal(table["split"], split)), pc.equal(table["status"], tables.OK)
    )
    table = table.filter(wanted)
    if not len(table):
        raise RunError(f"{product}: no {kind} of split {split!r} was embedded; its rows say why")
    flat = table["vector"].combine_chunks().flatten().to_numpy(zero_copy_only=False).astype(np.float32)
    return Embedded(table["item_id"].to_pylist(), flat.reshape(len(table), -1))
