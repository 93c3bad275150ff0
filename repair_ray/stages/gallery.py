"""What a search reads, as files that every process of a node maps: vectors, ids, right answers, an approximate index.

They are written once, beside the half-made table, and go with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from repair_ray import tables
from repair_ray.config import MiningConfig
from repair_ray.engines.inverted import InvertedSearcher, build_inverted, recall
from repair_ray.engines.searcher import Searcher
from repair_ray.evaluation.positives import Answers
from repair_ray.run import Run, RunError, read_json, write_json
from repair_ray.stages.positives import answers
from repair_ray.stages.vectors import embedded_ids, pack

# Which kind asks and which answers, in each direction.
QUERY = {"i2t": tables.IMAGE, "t2i": tables.CAPTION}
GALLERY = {"i2t": tables.CAPTION, "t2i": tables.IMAGE}
FACTS = "search.json"
# Queries of each direction that tell the recall of an approximate index.
RECALL_QUERIES = 1_000


@dataclass(frozen=True)
class Files:
    """The files of one search, in a folder."""

    folder: Path

    @cached_property
    def facts(self) -> dict[str, Any]:
        """`rows` of each kind, `width`, and for an approximate index `lists` and `recall` of each direction."""
        return read_json(self.folder / FACTS) or {}

    def vectors(self, kind: str) -> np.ndarray:
        """The vectors of a kind, `[N, D]` float32, mapped anew: pages are given back with the array."""
        return np.asarray(np.load(self.folder / f"{kind}.npy", mmap_mode="r"))

    def ids(self, kind: str) -> pa.Array:
        """The ids of a kind, mapped."""
        with pa.memory_map(str(self.folder / f"{kind}.arrow")) as file:
            return pa.ipc.open_file(file).read_all()["item_id"].combine_chunks()

    def answers(self, direction: str) -> Answers:
        """What is right for each query of a direction, mapped."""
        parts = ("kind", "starts", "members")
        return Answers(*(np.asarray(np.load(self._answers(direction, part), mmap_mode="r")) for part in parts))

    def inverted(self, direction: str) -> Path:
        """The approximate index of a direction's gallery."""
        return self.folder / f"{direction}.ivf"

    def shard(self, direction: str, number: int, shards: int, memory_bytes: int, *, gpu: bool = False) -> Searcher:
        """An exact search of one of the equal parts of a direction's gallery."""
        vectors = self.vectors(GALLERY[direction])
        start, end = (len(vectors) * part // shards for part in (number, number + 1))
        return Searcher(
            vectors[start:end], model="the gallery", memory_bytes=memory_bytes, first=start, checked=True, gpu=gpu
        )

    def _answers(self, direction: str, part: str) -> Path:
        return self.folder / f"{direction}-{part}.npy"


def prepare(
    run: Run, mining: MiningConfig, embeddings: str, folder: Path, *, ids: list[str] | None, seed: int
) -> Files:
    """Write the files of a search of an `embeddings` table; `ids` restricts it to a fold. Whole files are kept.

    Raises:
        RunError: nothing was embedded, a vector is no unit vector, or an approximate index finds less than
            `mining.min_recall` of the exact neighbours.
    """
    files = Files(folder)
    if files.facts:
        return files
    folder.mkdir(parents=True, exist_ok=True)
    allowed = None if ids is None else pa.array(ids, pa.string())
    rows, widths, found = {}, set(), {}
    for kind in (tables.IMAGE, tables.CAPTION):
        items = embedded_ids(run, embeddings, kind, mining.split)
        items = items if allowed is None else items.filter(pc.is_in(items, allowed))
        widths.add(pack(run, embeddings, kind, mining.split, items, folder / f"{kind}.npy"))
        _write_ids(items, folder / f"{kind}.arrow")
        rows[kind], found[kind] = len(items), items
    if len(widths) > 1:
        raise RunError(f"{embeddings}: the vectors of images and captions have different dimensions")
    for direction, right in answers(run, mining.split, found[tables.IMAGE], found[tables.CAPTION]).items():
        for part in ("kind", "starts", "members"):
            np.save(files._answers(direction, part), getattr(right, part))
    facts: dict[str, Any] = {"rows": rows, "width": widths.pop()}
    if mining.index == "ivf":
        facts |= _inverted(files, mining, seed)
    write_json(folder / FACTS, facts)
    return Files(folder)


def _write_ids(items: pa.Array, path: Path) -> None:
    table = pa.table({"item_id": items})
    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table)


def _inverted(files: Files, mining: MiningConfig, seed: int) -> dict[str, Any]:
    lists, shares, sampled = {}, {}, {}
    for direction in mining.directions:
        gallery, queries = files.vectors(GALLERY[direction]), files.vectors(QUERY[direction])
        lists[direction] = build_inverted(gallery, files.inverted(direction), mining.ivf_lists, seed)
        sample = np.random.default_rng(seed).choice(len(queries), min(RECALL_QUERIES, len(queries)), replace=False)
        asked = queries[np.sort(sample)]
        exact = Searcher(gallery, model="the gallery", memory_bytes=mining.memory_mb * 2**20, checked=True)
        near = InvertedSearcher(files.inverted(direction), mining.ivf_probes)
        share = recall(exact.top_k(asked, mining.k)[0], near.top_k(asked, mining.k)[0])
        shares[direction], sampled[direction] = round(share, 4), len(asked)
        if share < mining.min_recall:
            raise RunError(
                f"mining.index=ivf finds {share:.3f} of the {mining.k} nearest of {len(asked)} sampled queries "
                f"({direction}), less than mining.min_recall={mining.min_recall:g}: raise mining.ivf_probes "
                f"(it is {mining.ivf_probes} of {lists[direction]} lists), or take mining.index=flat"
            )
    return {"lists": lists, "recall": shares, "sampled": sampled}
