"""Retrievers on a multi-match benchmark of files (`evaluation.benchmark_files`): queries, a gallery, all matches."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from repair_ray.data.images import ImageProblem
from repair_ray.data.records import DataError
from repair_ray.data.store import ImageStore
from repair_ray.evaluation.benchmark_files import Benchmark, read_benchmark
from repair_ray.evaluation.multimatch import (
    DENOMINATORS,
    Denominator,
    average_precision,
    multimatch_metrics,
    positive_ranks,
)
from repair_ray.evaluation.retrieval import TIE_RULE
from repair_ray.evaluation.statistics import bootstrap_interval, mean_interval
from repair_ray.measuring.encoding import CHUNK, Encodes, chunks, encode_pictures
from repair_ray.measuring.retrievers import Named, load_all
from repair_ray.measuring.sources import Unused

BOOTSTRAP = 1000
HELD_OUT = "held_out"


def labelled(
    seeds: Sequence[Sequence[Named]],
    folder: Path,
    *,
    k: int = 20,
    denominator: Denominator = "min",
    bootstrap: int = BOOTSTRAP,
    seed: int = 0,
) -> dict[str, Any]:
    """mAP@K and the other measures of many right answers, on a benchmark's files.

    The interval of mAP@K is a bootstrap over queries. Queries without a match count in `skipped`; pictures that cannot
    be opened are counted and left out. Where some queries are held out from the teachers, they are measured apart too.

    Args:
        seeds: retrievers of one method by label; further ones of the same labels are the method's other seeds.

    Returns:
        `protocol`, `retrievers` (of the first seed), `difference` of two retrievers, and, of several seeds, `seeds`:
        mAP@K of each, their mean, deviation (of a sample) and 95 % t interval.

    Raises:
        DataError: broken files, no picture that can be opened, or other labels in another seed. RetrieverError.
    """
    labels = [named.label for named in seeds[0]]
    for number, others in enumerate(seeds[1:], start=2):
        if [named.label for named in others] != labels:
            raise DataError(
                f"target {number} has other retrievers ({', '.join(named.label for named in others)}) than the first "
                f"({', '.join(labels)}): seeds are of one method"
            )
    benchmark = read_benchmark(folder)
    encoders = load_all([named for found in seeds for named in found])
    unused = Unused()
    pictures, features = _encode_gallery(benchmark, folder, encoders, unused)
    queries = [query.text for query in benchmark.queries]
    asked = [encoder.encode_texts(queries) for encoder in encoders]
    right, ignored = (_places(benchmark, found, pictures) for found in (benchmark.matches, benchmark.ignored))
    ranks = [
        positive_ranks(query, gallery, right, ignored=ignored) for query, gallery in zip(asked, features, strict=True)
    ]
    held = np.array([query.held_out for query in benchmark.queries])
    made = [_metrics(found, held, k, denominator, bootstrap, seed) for found in ranks]
    facts: dict[str, Any] = {
        "protocol": _protocol(benchmark, folder, len(pictures), unused, k, denominator),
        "retrievers": {
            named.label: {**named.facts(), "metrics": found} for named, found in zip(seeds[0], made, strict=False)
        },
    }
    if len(labels) == 2:
        facts["difference"] = _difference(ranks[0], ranks[1], k, denominator, bootstrap, seed)
    if len(seeds) > 1:
        name = f"map@{k}"
        facts["seeds"] = {
            label: _spread([found["all"][name] for found in made[place :: len(labels)]])
            for place, label in enumerate(labels)
        }
    return facts


def _encode_gallery(
    benchmark: Benchmark, folder: Path, encoders: Sequence[Encodes], unused: Unused
) -> tuple[dict[str, int], list[np.ndarray]]:
    """Places by picture id, and float32 `[P, D]` of each encoder, of the pictures that can be opened."""
    store = ImageStore(str(folder.absolute()), benchmark.background)
    places: dict[str, int] = {}
    parts: list[list[np.ndarray]] = [[] for _ in encoders]
    for chunk in chunks(benchmark.gallery, CHUNK):
        opened: list[Image.Image] = []
        for picture in chunk:
            try:
                opened.append(store.rgb(picture.uri, picture.offset, picture.length, picture.sha256))
            except ImageProblem as problem:
                unused.add(problem.reason, picture.name)
                continue
            places[picture.id] = len(places)
        if opened:
            for part, found in zip(parts, encode_pictures(opened, encoders), strict=True):
                part.append(found)
    if not places:
        raise DataError(f"no picture of {folder} can be used: {unused.examples()}")
    return places, [np.concatenate(part) for part in parts]


def _places(benchmark: Benchmark, found: Any, pictures: dict[str, int]) -> list[np.ndarray]:
    return [
        np.array([pictures[image] for image in found.get(query.id, ()) if image in pictures], np.int64)
        for query in benchmark.queries
    ]


def _metrics(
    ranks: Sequence[np.ndarray], held: np.ndarray, k: int, denominator: Denominator, bootstrap: int, seed: int
) -> dict[str, Any]:
    found = {"all": _with_interval(ranks, k, denominator, bootstrap, seed)}
    own = [row for row, out in zip(ranks, held, strict=True) if out]
    if any(len(row) for row in own):
        found[HELD_OUT] = _with_interval(own, k, denominator, bootstrap, seed)
    return found


def _with_interval(
    ranks: Sequence[np.ndarray], k: int, denominator: Denominator, bootstrap: int, seed: int
) -> dict[str, Any]:
    try:
        metrics = multimatch_metrics(ranks, k=k, denominator=denominator)
    except ValueError as error:
        raise DataError(str(error)) from None
    low, high = bootstrap_interval(_precisions(ranks, k, denominator), bootstrap, seed)
    return {**metrics, f"map@{k}_ci": [round(low, 3), round(high, 3)]}


def _precisions(ranks: Sequence[np.ndarray], k: int, denominator: Denominator) -> np.ndarray:
    """AP@K of each query that has a match, in percent."""
    return np.array([100 * average_precision(own, len(own), k, denominator) for own in ranks if len(own)])


def _difference(
    first: Sequence[np.ndarray],
    second: Sequence[np.ndarray],
    k: int,
    denominator: Denominator,
    bootstrap: int,
    seed: int,
) -> dict[str, Any]:
    """What the second gains in mAP@K, with a paired bootstrap interval over queries."""
    gains = _precisions(second, k, denominator) - _precisions(first, k, denominator)
    low, high = bootstrap_interval(gains, bootstrap, seed)
    return {f"map@{k}": round(float(gains.mean()), 3), "interval": [round(low, 3), round(high, 3)]}


def _spread(values: list[float]) -> dict[str, Any]:
    mean, low, high = mean_interval(values)
    return {
        "values": values,
        "mean": round(mean, 3),
        "deviation": round(statistics.stdev(values), 3),
        "interval": [round(low, 3), round(high, 3)],
    }


def _protocol(
    benchmark: Benchmark, folder: Path, pictures: int, unused: Unused, k: int, denominator: Denominator
) -> dict[str, Any]:
    return {
        "benchmark": benchmark.facts.get("name", folder.name),
        "read_from": str(folder),
        "queries": len(benchmark.queries),
        "pictures": pictures,
        "matches": sum(len(found) for found in benchmark.matches.values()),
        "ignored": sum(len(found) for found in benchmark.ignored.values()),
        "completeness": benchmark.facts.get("completeness"),
        "ties": TIE_RULE,
        "k": k,
        "map_denominator": DENOMINATORS[denominator],
        "unused": unused.facts(),
    }
