"""Mine: the retriever's failures in both directions, with full knowledge of what is a positive (methods, 1.1)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from repair_ray import tables
from repair_ray.config import Config, MiningConfig
from repair_ray.engines.searcher import Searcher
from repair_ray.evaluation.positives import known_positives
from repair_ray.run import CAPTIONS, IMAGES, Recipe, Run
from repair_ray.stages.graph import Progress, Step, quiet, run_graph
from repair_ray.stages.pools import pool_of
from repair_ray.stages.rows import Row, RowStage
from repair_ray.stages.vectors import read_embeddings


@dataclass(frozen=True)
class Positives:
    """Who belongs to whom in one split, by group, by equal text and by equal pixels (which share a group).

    `of_image` and `of_caption` give the known positives on the other side, as ids.
    """

    of_image: dict[str, frozenset[str]]
    of_caption: dict[str, frozenset[str]]

    @classmethod
    def read(cls, run: Run, split: str) -> Positives:
        """From the finished `images` and `captions` tables."""
        images = [
            r for r in run.read(IMAGES, ["image_id", "group_id", "split", "status"]).to_pylist() if _usable(r, split)
        ]
        captions = [
            r
            for r in run.read(CAPTIONS, ["caption_id", "group_id", "text_key", "split", "status"]).to_pylist()
            if _usable(r, split)
        ]
        return cls(
            *known_positives(
                [(row["image_id"], row["group_id"]) for row in images],
                [(row["caption_id"], row["group_id"], row["text_key"]) for row in captions],
            )
        )

    def of(self, direction: str, query: str) -> frozenset[str]:
        """Positives of a query: captions of an image (`i2t`), images of a caption (`t2i`)."""
        return (self.of_image if direction == "i2t" else self.of_caption)[query]


def _usable(row: dict[str, Any], split: str) -> bool:
    return bool(row["split"] == split and row["status"] == tables.OK)


def fold_of(group: str, folds: int) -> int:
    """The cross-fitting fold of a group: items that show the same thing stay together."""
    return int(tables.row_id("fold", group), 16) % folds


class MineFailures(RowStage):
    """Searches the other modality for each query and keeps what does not belong to it."""

    def setup(
        self,
        folder: str,
        embeddings: str,
        split: str,
        keep: str,
        k: int,
        per_query: int | None,
        memory_mb: int,
        ids: list[str] | None,
    ) -> None:
        run = Run(Path(folder))
        self._positives = Positives.read(run, split)
        self._keep, self._k, self._per_query = keep, k, k if per_query is None else per_query
        self._galleries: dict[str, tuple[list[str], np.ndarray, Searcher]] = {}
        allowed = None if ids is None else set(ids)
        for direction, kind in (("i2t", tables.CAPTION), ("t2i", tables.IMAGE)):
            found = read_embeddings(run, embeddings, kind, split)
            rows = [i for i, item in enumerate(found.ids) if allowed is None or item in allowed]
            features = np.ascontiguousarray(found.features[rows])
            searcher = Searcher(features, model=embeddings, memory_bytes=memory_mb * 2**20)
            self._galleries[direction] = ([found.ids[i] for i in rows], features, searcher)

    def process(self, rows: list[Row]) -> list[Row]:
        answers: list[Row] = []
        for direction in sorted({row["direction"] for row in rows}):
            answers += self._search(direction, [row for row in rows if row["direction"] == direction])
        return answers

    def failed(self, row: Row, reason: str) -> Row:
        identity = tables.row_id("mine", row["direction"], row["query_id"])
        return {**row, "failure_id": identity, "status": tables.ERROR, "reason": reason}

    def _search(self, direction: str, rows: list[Row]) -> list[Row]:
        ids, features, searcher = self._galleries[direction]
        place = {item: i for i, item in enumerate(ids)}
        owned = [sorted(place[p] for p in self._positives.of(direction, row["query_id"]) if p in place) for row in rows]
        # Deep enough that k false positives are left once every positive of the batch is taken out.
        depth = self._k + max((len(own) for own in owned), default=0)
        queries = np.asarray([row["vector"] for row in rows], np.float32)
        scores, found = searcher.top_k(queries, depth)
        answers: list[Row] = []
        for row, query, own, row_scores, row_found in zip(rows, queries, owned, scores, found, strict=True):
            answers += self._failures(row, query, own, row_scores, row_found, ids, features)
        return answers

    def _failures(
        self,
        row: Row,
        query: np.ndarray,
        own: list[int],
        scores: np.ndarray,
        found: np.ndarray,
        ids: list[str],
        features: np.ndarray,
    ) -> list[Row]:
        direction = row["direction"]
        if not own:
            return [self._none(row, "its ground truth was not embedded")]
        truth_scores = features[own] @ query
        best = int(np.lexsort((own, -truth_scores))[0])
        mine = set(own)
        kept: list[Row] = []
        false_positives = 0
        for rank, (score, item) in enumerate(zip(scores.tolist(), found.tolist(), strict=True), start=1):
            if item in mine or item < 0:
                continue
            false_positives += 1
            if false_positives > self._k or len(kept) == self._per_query:
                break
            if self._keep == "above_gt" and score < truth_scores[best]:
                break
            kept.append(
                {
                    "failure_id": tables.row_id(direction, row["query_id"], ids[item]),
                    "direction": direction,
                    "query_id": row["query_id"],
                    "candidate_id": ids[item],
                    "ground_truth_id": ids[own[best]],
                    "rank": rank,
                    "score": score,
                    "ground_truth_score": float(truth_scores[best]),
                    "status": tables.OK,
                }
            )
        return kept or [self._none(row, "no false positive")]

    def _none(self, row: Row, reason: str) -> Row:
        identity = tables.row_id("mine", row["direction"], row["query_id"])
        return {**row, "failure_id": identity, "status": tables.NO_FAILURE, "reason": reason}


def mine(
    run: Run,
    config: Config,
    product: str,
    embeddings: str,
    *,
    ids: list[str] | None = None,
    progress: Progress = quiet,
) -> None:
    """Make a `failures` table from an `embeddings` table; `ids` restricts queries and gallery to a fold.

    `keep=top_k` keeps the `k` best false positives of a query wherever they rank, so that a query whose own items fill
    the top still shows its near misses (ours; methods 1.1 takes them from the first `k` ranks).
    """
    mining = config.mining
    arguments = {
        "folder": str(run.folder),
        "embeddings": embeddings,
        "split": mining.split,
        "keep": mining.keep,
        "k": mining.k,
        "per_query": mining.max_per_query,
        "memory_mb": mining.memory_mb,
        "ids": ids,
    }
    run_graph(
        run,
        product,
        Recipe({"mining": mining.model_dump(mode="json", exclude={"memory_mb", "pool"})}, (embeddings,)),
        tables.FAILURES,
        [Step(MineFailures, tables.FAILURES.schema, arguments, *pool_of(config, "mining"))],
        lambda: _queries(run, config, embeddings, ids),
        faults=config.faults,
        cluster=config.cluster,
        finish=lambda table: within_budget(table, mining),
        progress=progress,
    )


def _queries(run: Run, config: Config, embeddings: str, ids: list[str] | None) -> pa.Table:
    allowed = None if ids is None else set(ids)
    rows: list[dict[str, Any]] = []
    for direction, kind in (("i2t", tables.IMAGE), ("t2i", tables.CAPTION)):
        if direction not in config.mining.directions:
            continue
        found = read_embeddings(run, embeddings, kind, config.mining.split)
        rows += [
            {"query_id": item, "direction": direction, "vector": vector}
            for item, vector in zip(found.ids, found.features, strict=True)
            if allowed is None or item in allowed
        ]
    return tables.to_table(rows, tables.QUERIES)


def within_budget(table: pa.Table, mining: MiningConfig) -> pa.Table:
    """Beyond `mining.budget`, failures of a direction stay as rejected rows: best ranks first, ties by id."""
    budget = mining.budget
    if budget is None:
        return table
    rows = table.to_pylist()
    for direction in mining.directions:
        open_rows = [row for row in rows if row["direction"] == direction and row["status"] == tables.OK]
        open_rows.sort(key=lambda row: (row["rank"], row["failure_id"]))
        for row in open_rows[budget:]:
            row["status"], row["reason"] = tables.REJECTED, "beyond mining.budget"
    return tables.to_table(rows, tables.FAILURES.schema)
