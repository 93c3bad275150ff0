"""Multi-expert candidates: per query the union of the experts' top pictures, and a random sample outside all unions."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from repair_ray import tables
from repair_ray.config import Config
from repair_ray.engines.searcher import Searcher
from repair_ray.evaluation.completeness import Proposal, sample_outside, unions
from repair_ray.multimatch.experts import Expert
from repair_ray.multimatch.gallery import features_in_gallery, gallery_ids
from repair_ray.multimatch.products import GALLERY, PAIRS, QUERIES, section_of, settings_of, usable
from repair_ray.run import Recipe, Run
from repair_ray.stages.vectors import read_embeddings
from repair_ray.tables import multimatch as benchmark_tables


def make_pairs(run: Run, config: Config, experts: Sequence[Expert]) -> None:
    """Make the `pairs` table: every pair that is to be verified, with the experts that proposed it.

    Held-out queries get the proposals of those experts alone that are no teacher. `proposed` is false for the random
    sample, which is drawn over all outside pairs of all queries together.
    """
    chosen = section_of(config)
    teachers = {expert.name: {"teacher": expert.teacher} for expert in experts}
    settings = settings_of(candidates=chosen.candidates.model_dump(mode="json"), experts=teachers)
    recipe = Recipe({**settings, "seed": config.seed}, (QUERIES, GALLERY, *(expert.product for expert in experts)))
    if run.ready(PAIRS, recipe):
        return
    start = time.monotonic()
    images = gallery_ids(run)
    rows = usable(run.read(QUERIES)).sort_by("query_id").to_pylist()
    queries = [row["query_id"] for row in rows]
    held_out = np.array([row["held_out"] for row in rows])
    rankings = {expert.name: _ranking(run, config, expert, images, queries, held_out) for expert in experts}
    proposals = unions(rankings, len(queries))
    inside = [np.array([proposal.item for proposal in own], np.int64) for own in proposals]
    sampled = sample_outside(inside, len(images), chosen.candidates.outside * len(queries), config.seed)
    parts = [
        _table(query, images, own, outside) for query, own, outside in zip(queries, proposals, sampled, strict=True)
    ]
    table = pa.concat_tables(parts)
    facts = {
        "queries": len(queries),
        "gallery": len(images),
        "proposed": sum(map(len, inside)),
        "outside": len(queries) * len(images) - sum(map(len, inside)),
        "sampled": sum(map(len, sampled)),
    }
    run.commit(PAIRS, recipe, benchmark_tables.PAIRS, table, time.monotonic() - start, candidates=facts)


def _ranking(
    run: Run, config: Config, expert: Expert, images: list[str], queries: list[str], held_out: np.ndarray
) -> np.ndarray:
    """The expert's best pictures for each query, as places in the gallery `[Q, top]`; -1 where it proposes nothing."""
    chosen = section_of(config)
    places = {image: place for place, image in enumerate(images)}
    features, own = features_in_gallery(run, expert.product, chosen.split, places)
    asked = read_embeddings(run, expert.product, tables.CAPTION, chosen.split)
    searcher = Searcher(features, model=expert.name, memory_bytes=config.mining.memory_mb * 2**20)
    _, found = searcher.top_k(asked.features, chosen.candidates.top, expert.name)
    ranking = np.full((len(queries), found.shape[1]), -1, np.int64)
    ranking[np.searchsorted(queries, asked.ids)] = own[found]
    if expert.teacher:
        ranking[held_out] = -1
    return ranking


def _table(query: str, images: list[str], proposals: list[Proposal], outside: np.ndarray) -> pa.Table:
    rows = [
        {"image_id": images[own.item], "proposed": True, "experts": list(own.ranks), "ranks": list(own.ranks.values())}
        for own in proposals
    ]
    rows += [{"image_id": images[place], "proposed": False, "experts": [], "ranks": []} for place in outside.tolist()]
    common = {"query_id": query, "status": tables.OK}
    return tables.to_table(
        [{**row, **common, "pair_id": tables.row_id("pair", query, row["image_id"])} for row in rows],
        benchmark_tables.PAIRS.schema,
    )
