"""Mining against `mine_hard_negatives` of sentence-transformers: the same vectors, the same negatives.

Every query is a caption with one picture of its own, every vector is random, and both must find the same negatives.
Encoding is left out: their model answers with vectors that are there. Ours is the whole stage, from a committed table
of embeddings to a committed table of failures, the start of its actors counted; and its engine alone, from arrays to
arrays.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import redirect_stderr
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np

from benchmarks.rows import Row, Skipped
from benchmarks.search import EMBEDDINGS, WIDTH, make_run
from benchmarks.turns import Settings, in_turns
from repair_ray import tables
from repair_ray.config import parse_config
from repair_ray.run import Run
from repair_ray.stages.vectors import read_embeddings

MARK = 2.0
K = 5
DIRECTION = "t2i"
STAGE, ENGINE = "mine stage", "find_failures"
THEIRS, THEIRS_FAISS = "mine_hard_negatives", "mine_hard_negatives, use_faiss"
NEEDED = ("sentence_transformers", "datasets")
# Ids of the negatives of each query, best first.
Negatives = dict[str, list[str]]


def rows(settings: Settings) -> Iterator[Row]:
    """Queries a second, and memory."""
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise Skipped(
            f"{' and '.join(missing)} not installed; run it in an environment of requirements-models.txt and "
            "benchmarks/requirements-peers.txt"
        )
    count = settings.items or (1_000 if settings.quick else 20_000)
    run = Run(settings.folder / "run")
    make_run(run, count, count)
    import faiss
    import torch

    from repair_ray.stages.graph import start_ray

    faiss.omp_set_num_threads(settings.threads)
    torch.set_num_threads(settings.threads)
    start_ray()
    ours, engine = Stage(run, settings.threads), Engine(run)
    theirs, theirs_faiss = Theirs(run, use_faiss=False), Theirs(run, use_faiss=True)
    sides = {THEIRS: theirs.turn, THEIRS_FAISS: theirs_faiss.turn, STAGE: ours.turn, ENGINE: engine.turn}
    turns = in_turns(sides, settings.pairs)
    found = ours.found()
    for other in (engine, theirs, theirs_faiss):
        check(found, other.found())
    name = f"mine {count:,} x {count:,} x {WIDTH}"
    note = f"{K} negatives a query, {settings.threads} threads; the same negatives"
    for side in (STAGE, ENGINE):
        for peer in (THEIRS, THEIRS_FAISS):
            yield turns.row(f"{name}, {side}, beside {peer}", side, peer, count, "queries/s", note, mark=MARK)
    yield turns.memory_row(f"{name}, {STAGE}", STAGE, THEIRS)


def check(ours: Negatives, theirs: Negatives) -> None:
    """Both found the same negatives; one query in a thousand may differ, where scores are alike but for rounding."""
    assert ours.keys() == theirs.keys(), "not the same queries have negatives"
    other = sum(set(ours[query]) != set(theirs[query]) for query in ours)
    assert other <= len(ours) // 1000, f"{other} of {len(ours)} queries have other negatives"


class Stage:
    """`mine`, again and again, into tables of their own."""

    def __init__(self, run: Run, threads: int) -> None:
        self.run, self.turns = run, 0
        self.config = parse_config(
            {
                "data": {"train": "none", "test": "none"},
                "mining": {"k": K, "directions": [DIRECTION]},
                "pool": {"num_cpus": threads},
            }
        )

    def turn(self) -> float:
        from repair_ray.stages.mine import mine

        self.turns += 1
        begun = time.monotonic()
        mine(self.run, self.config, f"failures-{self.turns}", EMBEDDINGS)
        return time.monotonic() - begun

    def found(self) -> Negatives:
        table = self.run.read(f"failures-{self.turns}").sort_by([("query_id", "ascending"), ("rank", "ascending")])
        assert set(table["status"].to_pylist()) == {tables.OK}
        made: Negatives = {}
        for query, candidate in zip(table["query_id"].to_pylist(), table["candidate_id"].to_pylist(), strict=True):
            made.setdefault(query, []).append(candidate)
        return made


@dataclass(frozen=True)
class Vectors:
    """Captions and pictures, in the order of their ids; picture i is that of caption i."""

    captions: Any
    images: Any

    @classmethod
    def read(cls, run: Run) -> Vectors:
        """From the run's table."""
        return cls(*(read_embeddings(run, EMBEDDINGS, kind, "train") for kind in (tables.CAPTION, tables.IMAGE)))


class Engine:
    """The search and the rule for failures, without tables and without Ray."""

    def __init__(self, run: Run) -> None:
        from repair_ray.stages.gallery import Files, prepare

        self.vectors = Vectors.read(run)
        mining = parse_config({"data": {"train": "none", "test": "none"}, "mining": {"directions": [DIRECTION]}}).mining
        files: Files = prepare(run, mining, EMBEDDINGS, run.folder / "files", ids=None, seed=0)
        self.answers = files.answers(DIRECTION)
        self.made: Any = None

    def turn(self) -> float:
        from repair_ray.engines.failures import find_failures
        from repair_ray.engines.searcher import Searcher

        queries, gallery = self.vectors.captions.features, self.vectors.images.features
        begun = time.monotonic()
        search = Searcher(gallery, model="random").top_k
        places = np.arange(len(queries))
        self.made = find_failures(queries, gallery, self.answers, places, search, k=K)
        return time.monotonic() - begun

    def found(self) -> Negatives:
        made: Negatives = {}
        for query, candidate in zip(self.made.query.tolist(), self.made.candidate.tolist(), strict=True):
            made.setdefault(self.vectors.captions.ids[query], []).append(self.vectors.images.ids[candidate])
        return made


class Theirs:
    """`mine_hard_negatives` over the ids as texts."""

    def __init__(self, run: Run, *, use_faiss: bool) -> None:
        self.vectors, self.use_faiss = Vectors.read(run), use_faiss
        self.made: Any = None

    def turn(self) -> float:
        from datasets import Dataset
        from sentence_transformers.util import mine_hard_negatives

        captions, images = self.vectors.captions, self.vectors.images
        pairs = Dataset.from_dict({"anchor": captions.ids, "positive": images.ids})
        with open(os.devnull, "w") as nothing, redirect_stderr(nothing):  # its progress bars
            begun = time.monotonic()
            self.made = mine_hard_negatives(
                pairs,
                Lookup(captions, images),
                num_negatives=K,
                output_format="n-tuple",
                use_faiss=self.use_faiss,
                verbose=False,
            )
            return time.monotonic() - begun

    def found(self) -> Negatives:
        names = [name for name in self.made.column_names if name.startswith("negative")]
        columns = [self.made[name] for name in names]
        return {query: [column[place] for column in columns] for place, query in enumerate(list(self.made["anchor"]))}


class Lookup:
    """A model as `mine_hard_negatives` uses it, which has its vectors already."""

    def __init__(self, captions: Any, images: Any) -> None:
        import torch

        self.device = torch.device("cpu")
        self.captions, self.images = captions, images

    def encode_query(self, texts: list[str], **options: Any) -> np.ndarray:
        return self._of(self.captions, texts)

    def encode_document(self, texts: list[str], **options: Any) -> np.ndarray:
        return self._of(self.images, texts)

    def similarity(self, first: Any, second: Any) -> Any:
        from sentence_transformers.util import cos_sim

        return cos_sim(first, second)

    def similarity_pairwise(self, first: Any, second: Any) -> Any:
        from sentence_transformers.util import pairwise_cos_sim

        return pairwise_cos_sim(first, second)

    def get_embedding_dimension(self) -> int:
        return WIDTH

    @staticmethod
    def _of(items: Any, texts: list[str]) -> np.ndarray:
        assert texts == items.ids
        return np.ascontiguousarray(items.features)
