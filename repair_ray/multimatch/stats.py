"""What a benchmark holds, and what is known of its gaps: the facts of `stats.json`."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from repair_ray import tables
from repair_ray.config import Config
from repair_ray.data.access import image_store
from repair_ray.evaluation.match_truth import measure_matches
from repair_ray.evaluation.votes import YES, between_verifiers
from repair_ray.multimatch.gallery import gallery_ids
from repair_ray.multimatch.matches import labels_in
from repair_ray.multimatch.products import (
    GALLERY,
    MATCHES,
    OVERLAP,
    PAIRS,
    QUERIES,
    STATS,
    section_of,
    usable,
)
from repair_ray.multimatch.queries import facts_of
from repair_ray.multimatch.verify import language_of
from repair_ray.run import Run, RunError, write_json

HEURISTIC = (
    "labelled by the heuristic backend: rules that compare the query with the picture's captions, and see no picture"
)


def stats_of(run: Run, config: Config) -> dict[str, Any]:
    """All figures of a built benchmark, as plain values.

    Raises:
        RunError: the benchmark is not built that far.
    """
    made = run.manifest(MATCHES)
    if made is None:
        raise RunError(f"{run.folder} has no labels yet: multimatch build makes them, or people do (multimatch review)")
    rows = run.read(MATCHES).to_pylist()
    of_query = Counter(row["query_id"] for row in rows if row["label"] == YES)
    queries = usable(run.read(QUERIES))["query_id"].to_pylist()
    products = [*made["verifiers"]["machines"], *made["verifiers"]["people"]]
    facts: dict[str, Any] = {
        "name": config.name,
        "queries": {**facts_of(run), "without_match": sum(query not in of_query for query in queries)},
        "gallery": _gallery(run),
        "candidates": (run.manifest(PAIRS) or {})["candidates"],
        "matches": _distribution([of_query[query] for query in queries]),
        "labels": dict(Counter(row["label"] for row in rows)),
        "undecided": dict(Counter(row["reason"] for row in rows if row["status"] != tables.OK)),
        "experts": _experts(run, config, {row["pair_id"] for row in rows if row["label"] == YES}),
        "verifiers": {name: len(labels) for name, labels in labels_in(run, products).items()},
        "agreement": between_verifiers(labels_in(run, products)),
        "completeness": made["completeness"],
        "overlap": (run.manifest(OVERLAP) or {}).get("overlap"),
        "notes": _notes(run, config, of_query, queries),
    }
    if config.data.world is not None:
        facts["truth"] = measure_matches(
            run,
            image_store(run.folder, config.data),
            [(row["query_id"], row["text"]) for row in usable(run.read(QUERIES)).to_pylist()],
            gallery_ids(run),
            rows,
        )
    return facts


def write_stats(run: Run, config: Config) -> tuple[dict[str, Any], Path]:
    """`stats_of`, also as `stats.json` of the run."""
    facts = stats_of(run, config)
    path = run.folder / STATS
    write_json(path, facts)
    return facts, path


def _gallery(run: Run) -> dict[str, Any]:
    table = run.read(GALLERY)
    taken = usable(table)
    clusters = {number for number in taken["cluster"].to_pylist() if number is not None}
    return {"n": len(taken), "of": len(table), "clusters": len(clusters) or None}


def _distribution(counts: list[int]) -> dict[str, Any]:
    """How matches spread over queries: total, quartiles, extremes, and how many queries have how many."""
    low, quarter, half, three, high = (float(value) for value in np.quantile(counts, (0, 0.25, 0.5, 0.75, 1)))
    bins = ((0, 0), (1, 1), (2, 5), (6, 10), (11, 20), (21, 50), (51, None))
    spread = {
        f"{a}" if a == b else f"{a}+" if b is None else f"{a}-{b}": sum(
            a <= count and (b is None or count <= b) for count in counts
        )
        for a, b in bins
    }
    return {
        "n": sum(counts),
        "mean": round(float(np.mean(counts)), 3),
        "min": int(low),
        "quartiles": [quarter, half, three],
        "max": int(high),
        "queries_by_matches": spread,
    }


def _experts(run: Run, config: Config, right: set[str]) -> list[dict[str, Any]]:
    """What each expert proposed, and what no other did: candidates, and matches among them."""
    counts: Counter[tuple[str, str]] = Counter()
    for row in run.read(PAIRS, ["pair_id", "experts"]).to_pylist():
        match = row["pair_id"] in right
        for expert in row["experts"]:
            alone = len(row["experts"]) == 1
            counts[expert, "candidates"] += 1
            counts[expert, "matches"] += match
            counts[expert, "unique_candidates"] += alone
            counts[expert, "unique_matches"] += alone and match
    names = ("candidates", "matches", "unique_candidates", "unique_matches")
    return [
        {
            "name": expert.name,
            "teacher": expert.teacher,
            **{name: counts[expert.name, name] for name in names},
        }
        for expert in section_of(config).experts
    ]


def _notes(run: Run, config: Config, of_query: Counter[str], queries: list[str]) -> list[str]:
    """What a reader of the figures must know."""
    found = []
    by = section_of(config).verify.by
    if "language" in by and language_of(config).backend == "heuristic":
        found.append(HEURISTIC)
    if "groups" in by:
        found.append("labelled by the data's own groups: a picture matches a caption that it has, or its group has")
    empty = sum(query not in of_query for query in queries)
    if empty:
        found.append(f"{empty} queries have no match: they are kept and counted, and left out of mAP")
    overlap = (run.manifest(OVERLAP) or {}).get("overlap")
    if overlap and not overlap["kept"]:
        found.append("nothing is left to train on: multimatch.overlap.cosine may be too low for these embeddings")
    return found
