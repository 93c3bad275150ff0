"""How fast is exact search and mining, and in how much memory? `python -m benchmarks.search`.

* `speed`: the searcher against a plain FAISS index on the same threads, in turns.
* `memory`: mine a run of random unit vectors, by default 1,000,000 captions against 200,000 images. Memory is the
  proportional set size (a page that several processes map counts once) summed over the driver, all that Ray starts
  below it and the object store, looked at twice a second; the peak while mining, less what they took before it.
  A killed command goes on where it was, and its peak counts.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import typer
from rich.console import Console

from benchmarks.processes import Sampler, proportional
from benchmarks.rows import MIB, RESULTS, Row, keep, view
from benchmarks.turns import Settings, in_turns
from repair_ray import tables
from repair_ray.config import parse_config
from repair_ray.run import CAPTIONS, IMAGES, Recipe, Run, read_json, write_json

EMBEDDINGS = "round-1/embeddings"
FAILURES = "round-1/failures"
BLOCK = 16_384
WIDTH = 512
K = 5
app = typer.Typer(add_completion=False, help=__doc__)


@app.command()
def speed(
    queries: Annotated[int, typer.Option()] = 20_000,
    gallery: Annotated[int, typer.Option()] = 20_000,
    repeats: Annotated[int, typer.Option(help="turns of each")] = 5,
) -> None:
    """The searcher against a plain FAISS index."""
    _keep(*compare(queries, gallery, repeats, os.cpu_count() or 1))


def rows(settings: Settings) -> Iterator[Row]:
    """`speed` as a benchmark among others."""
    items = settings.items or (1_000 if settings.quick else 20_000)
    yield from compare(items, items, settings.pairs, settings.threads)


def compare(queries: int, gallery: int, pairs: int, threads: int) -> list[Row]:
    """The searcher against a plain FAISS index: queries a second, and memory."""
    import faiss

    from repair_ray.engines.searcher import Searcher

    faiss.omp_set_num_threads(threads)
    asked, items = unit(queries, 0), unit(gallery, 1)
    found: dict[str, np.ndarray] = {}

    def plain() -> float:
        begun = time.monotonic()
        index = faiss.IndexFlatIP(WIDTH)
        index.add(items)
        found["plain"] = index.search(asked, K)[1]
        return time.monotonic() - begun

    def ours() -> float:
        begun = time.monotonic()
        found["ours"] = Searcher(items, model="random").top_k(asked, K)[1]
        seconds = time.monotonic() - begun
        assert (found["ours"] == found["plain"]).all()
        return seconds

    peer = "faiss.IndexFlatIP"
    turns = in_turns({peer: plain, "ours": ours}, pairs)
    name = f"search {queries:,} x {gallery:,} x {WIDTH}"
    note = f"{threads} threads, equal results"
    return [
        turns.row(name, "ours", peer, queries, "queries/s", note, mark=0.9),
        turns.memory_row(name, "ours", peer),
    ]


@app.command()
def memory(
    captions: Annotated[int, typer.Option()] = 1_000_000,
    images: Annotated[int, typer.Option()] = 200_000,
    directions: Annotated[str, typer.Option(help="comma-separated")] = "t2i",
    actors: Annotated[int, typer.Option()] = 1,
    cpus: Annotated[int, typer.Option(help="of each actor")] = os.cpu_count() or 1,
    shards: Annotated[int | None, typer.Option()] = None,
    budget_mb: Annotated[int, typer.Option(help="what the run may take")] = 4096,
    output: Annotated[Path, typer.Option(help="folder of the run; removed once it is finished")] = Path("runs/search"),
) -> None:
    """The peak memory of mining, and its speed."""
    from repair_ray.stages.graph import start_ray
    from repair_ray.stages.mine import mine

    run = Run(output / f"{captions}-{images}")
    # Apart, so that nothing of it is left in the memory of this process.
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        pool.submit(make_run, run, captions, images).result()
    config = parse_config(
        {
            "data": {"train": "none", "test": "none"},
            "mining": {"k": K, "directions": directions.split(","), "shards": shards},
            "pool": {"actors": actors, "num_cpus": cpus},
        }
    )
    start_ray()
    watched = Memory(output / "peak.json")
    with watched:
        mine(run, config, FAILURES, EMBEDDINGS, progress=_tell())
    manifest = run.manifest(FAILURES) or {}
    right = check(run, directions.split(","))
    peak = round(watched.peak / MIB)
    _keep(
        {
            "name": f"mine {captions:,} captions, {images:,} images, {directions}",
            "ours": peak,
            "peer": budget_mb,
            "peer_name": "memory budget",
            "ratio": round(budget_mb / peak, 3),
            "unit": "MiB",
            "n": manifest["input_rows"],
            "note": f"{manifest['seconds']:.0f} s in all; {actors} actor(s) of {cpus} CPU(s); "
            f"idle before: {round(watched.idle / MIB)} MiB; {right} queries equal to a full sort",
        }
    )
    shutil.rmtree(output)


def unit(rows: int, seed: int) -> np.ndarray:
    """Random unit vectors `[rows, WIDTH]` float32."""
    made = np.random.default_rng(seed).standard_normal((rows, WIDTH), np.float32)
    made /= np.linalg.norm(made, axis=1, keepdims=True)
    return made


def make_run(run: Run, captions: int, images: int) -> None:
    """The tables that mining reads: captions by image in turn, each of a group and text of its own."""
    recipe = Recipe({"captions": captions, "images": images})
    counts = {tables.IMAGE: images, tables.CAPTION: captions}
    if not run.ready(IMAGES, recipe):
        names = [f"image-{n:08d}" for n in range(images)]
        columns = {"image_id": names, "group_id": names}
        columns |= {"split": ["train"] * images, "status": ["ok"] * images}
        run.commit(IMAGES, recipe, tables.IMAGES, tables.filled(columns, tables.IMAGES.schema), 0.0)
    if not run.ready(CAPTIONS, recipe):
        names = [f"caption-{n:08d}" for n in range(captions)]
        owners = [f"image-{n % images:08d}" for n in range(captions)]
        columns = {"caption_id": names, "image_id": owners, "group_id": owners, "text": names, "text_key": names}
        columns |= {"position": pa.array([0] * captions, pa.int32())}
        columns |= {"split": ["train"] * captions, "status": ["ok"] * captions}
        run.commit(CAPTIONS, recipe, tables.CAPTIONS, tables.filled(columns, tables.CAPTIONS.schema), 0.0)
    if not run.ready(EMBEDDINGS, recipe):
        pieces = (
            _embedded(kind, start, counts[kind]) for kind in sorted(counts) for start in range(0, counts[kind], BLOCK)
        )
        run.commit_pieces(EMBEDDINGS, recipe, tables.EMBEDDINGS, pieces, lambda: 0.0)


def _embedded(kind: str, start: int, count: int) -> pa.Table:
    rows = min(BLOCK, count - start)
    flat = pa.array(_vectors(kind, start)[:rows].ravel())
    columns = {
        "item_id": [f"{kind}-{n:08d}" for n in range(start, start + rows)],
        "kind": [kind] * rows,
        "split": ["train"] * rows,
        "vector": pa.ListArray.from_arrays(pa.array(np.arange(rows + 1) * WIDTH, pa.int32()), flat),
        "status": ["ok"] * rows,
    }
    return tables.filled(columns, tables.EMBEDDINGS.schema)


def _vectors(kind: str, start: int) -> np.ndarray:
    return unit(BLOCK, 2 * start + (kind == tables.IMAGE))


def check(run: Run, directions: list[str], sample: int = 20) -> int:
    """Compare the failures of some queries with a full sort of all scores; returns how many were compared."""
    import pyarrow.compute as pc

    from repair_ray.stages.gallery import GALLERY, QUERY
    from repair_ray.stages.vectors import read_embeddings

    done = 0
    for direction in directions:
        gallery, queries = (read_embeddings(run, EMBEDDINGS, k[direction], "train") for k in (GALLERY, QUERY))
        images = sum(item.startswith("image") for item in gallery.ids + queries.ids)
        for place in np.random.default_rng(0).choice(len(queries.ids), sample, replace=False).tolist():
            query = queries.ids[place]
            scores = gallery.features.astype(np.float32) @ queries.features[place]
            owner = np.array([int(item[-8:]) % images for item in gallery.ids])
            scores[owner == int(query[-8:]) % images] = -2
            best = [gallery.ids[i] for i in np.argsort(-scores, kind="stable")[:K]]
            rows = run.read(FAILURES, ["candidate_id", "rank"], pc.field("query_id") == query).sort_by("rank")
            assert rows["candidate_id"].to_pylist() == best, query
            done += 1
    return done


class Memory(Sampler):
    """The highest memory in bytes, beyond `idle`, of this process, all below it and what they share.

    It is kept in a file, for the process that goes on after this one was killed.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self.peak = (read_json(path) or {}).get("peak", 0)
        self.idle = proportional(os.getpid())

    def look(self) -> None:
        now = proportional(os.getpid()) - self.idle
        if now > self.peak:
            self.peak = now
            write_json(self._path, {"peak": now})


def _tell() -> Any:
    shown = [0.0]

    def progress(name: str, done: int, total: int) -> None:
        if time.monotonic() - shown[0] > 30:
            shown[0] = time.monotonic()
            print(f"{name}: {done:,} of {total:,}", flush=True)

    return progress


def _keep(*made: Row) -> None:
    keep(made, RESULTS / "search")
    Console().print(view(made))


if __name__ == "__main__":
    app()
