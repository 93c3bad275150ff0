"""Retrieval figures of retrievers on a source: R@K and MRR, many right answers, and the line from base to repaired."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from repair_ray.data.records import DataError
from repair_ray.evaluation.compare import compare
from repair_ray.evaluation.multimatch import (
    DENOMINATORS,
    DEPTH,
    Denominator,
    multimatch_metrics,
    positive_ranks,
)
from repair_ray.evaluation.positives import MIN_RATING, GroundTruth, Names, match, read_ground_truth, read_ratings
from repair_ray.evaluation.protocols import PROTOCOLS, fold_metrics
from repair_ray.evaluation.retrieval import best_ranks, direction_metrics
from repair_ray.measuring.encoding import Encodes, Features, Seen, encode
from repair_ray.measuring.retrievers import Named, load_all
from repair_ray.measuring.sources import Source

OWN = "each picture's own captions"
KNOWN = "by group, equal text and equal pixels"
BOOTSTRAP = 1000


def retrieval(
    retrievers: Sequence[Named],
    source: Source,
    *,
    protocol: str = "full",
    positives: str | None = None,
    bootstrap: int = BOOTSTRAP,
    seed: int = 0,
) -> dict[str, Any]:
    """R@1, R@5, R@10 and MRR of each retriever in both directions; of two, also what the second gains.

    Args:
        protocol: one of `PROTOCOLS`. Named benchmarks count a picture's own captions as right, as their papers do.
        positives: `own` or `known` (as a run counts); None: what goes with the protocol.

    Raises:
        DataError, RetrieverError: as reading and building; fewer pictures than two folds.
    """
    chosen = PROTOCOLS[protocol]
    own = positives == "own" or (positives is None and chosen.images is not None)
    seen, features = encode(source, load_all(retrievers))
    pairs = seen.own() if own else seen.known()
    facts = {
        **seen.protocol(),
        "name": chosen.name,
        "positives": OWN if own else KNOWN,
        "expected_images": chosen.images,
        "complete": chosen.images in (None, len(seen.images)),
    }
    if chosen.fold is not None:
        try:
            metrics = [
                fold_metrics(
                    found.images,
                    found.captions,
                    *pairs,
                    np.array(seen.owners),
                    chosen.fold,
                    bootstrap=bootstrap,
                    seed=seed,
                )
                for found in features
            ]
        except ValueError as error:
            raise DataError(f"{protocol} on {source.path}: {error}") from None
        return {"protocol": {**facts, "fold": chosen.fold}, "retrievers": _with(retrievers, metrics)}
    ranks = [_ranks(found, pairs) for found in features]
    made = [{d: direction_metrics(found[d], bootstrap, seed) for d in found} for found in ranks]
    return {
        "protocol": facts,
        "retrievers": _with(retrievers, made),
        **({"difference": _difference(seen, ranks, retrievers, seed)} if len(ranks) == 2 else {}),
    }


def multimatch(
    retrievers: Sequence[Named],
    source: Source,
    *,
    ground_truth: Sequence[Path] = (),
    ratings: Path | None = None,
    min_rating: float = MIN_RATING,
    k: int = DEPTH,
    denominator: Denominator = "min",
) -> dict[str, Any]:
    """mAP@K, mAP@R, R-Precision and R@K of each retriever, where queries have many right answers.

    Args:
        ground_truth: two files, image to captions and caption to images (ECCV Caption's, or of their form); none: what
            the data set itself tells (groups, equal texts, equal pixels).
        ratings: CxC's CSV of rated pairs, which add to each picture's own captions.

    Raises:
        DataError: as reading; a file whose ids are not in the data set.
    """
    if ground_truth and ratings:
        raise DataError("name two ground-truth files, or ratings, not both")
    if len(ground_truth) not in (0, 2):
        raise DataError("ground truth takes two files: image to captions, then caption to images")
    # Before the pictures are read: a wrong file is told at once.
    truth: dict[str, GroundTruth] | None = None
    if ground_truth:
        truth = dict(zip(("i2t", "t2i"), map(read_ground_truth, ground_truth), strict=True))
    elif ratings:
        truth = read_ratings(ratings, min_rating)
    seen, features = encode(source, load_all(retrievers))
    facts: dict[str, Any] = {**seen.protocol(), "map_denominator": DENOMINATORS[denominator], "k": k}
    sides = _asked(seen, truth, facts)
    if ratings:
        facts["positives"] = f"{OWN}, and pairs rated at least {min_rating:g}"
    made = []
    for found in features:
        galleries = {"i2t": (found.images, found.captions), "t2i": (found.captions, found.images)}
        made.append(
            {
                direction: multimatch_metrics(
                    positive_ranks(galleries[direction][0][asked], galleries[direction][1], right),
                    k=k,
                    denominator=denominator,
                )
                for direction, (asked, right) in sides.items()
            }
        )
    return {"protocol": facts, "retrievers": _with(retrievers, made)}


def _asked(
    seen: Seen, truth: dict[str, GroundTruth] | None, facts: dict[str, Any]
) -> dict[str, tuple[np.ndarray, list[np.ndarray]]]:
    """Queries (places) and the places of their right answers in both directions; says in `facts` where from."""
    if truth is None:
        facts["positives"] = KNOWN
        return {d: (np.arange(len(own)), own) for d, own in zip(("i2t", "t2i"), seen.known(), strict=True)}
    names = {"i2t": Names(seen.image_names), "t2i": Names([caption.names for caption in seen.captions])}
    other = {"i2t": "t2i", "t2i": "i2t"}
    own = dict(zip(("i2t", "t2i"), seen.own(), strict=True))
    found = {d: match(truth[d], names[d], names[other[d]], own[d]) for d in ("i2t", "t2i")}
    facts["positives"] = "ground-truth files"
    facts["ground_truth"] = {d: matched.facts for d, matched in found.items()}
    return {d: (matched.queries, matched.positives) for d, matched in found.items()}


def wise_ft(
    base: Named, repaired: Named, source: Source, alphas: Sequence[float], *, bootstrap: int = BOOTSTRAP, seed: int = 0
) -> dict[str, Any]:
    """Retrieval of the retrievers between base (0) and repaired (1); `best` is the alpha of the highest mean R@1.

    Raises:
        RetrieverError: the two have other weights or shapes. DataError: as reading.
    """
    from repair_ray.engines.interpolation import Blend, interpolate, state_of

    encoder, other = load_all([base, repaired])
    states = state_of(encoder), state_of(other)
    interpolate(*states, 0.5)  # what does not fit is told before the pictures are read
    blends: list[Encodes] = [Blend(encoder, *states, alpha) for alpha in alphas]
    seen, features = encode(source, blends)
    pairs = seen.known()
    points: list[dict[str, Any]] = []
    for alpha, found in zip(alphas, features, strict=True):
        metrics = {d: direction_metrics(r, bootstrap, seed) for d, r in _ranks(found, pairs).items()}
        points.append({"alpha": alpha, "metrics": metrics, "mean_r@1": _mean(metrics)})
    return {
        "protocol": {**seen.protocol(), "positives": KNOWN},
        "retrievers": {named.label: named.facts() for named in (base, repaired)},
        "points": points,
        # Of equal ones the nearest to the base, which has forgotten least.
        "best": max(points, key=lambda point: (point["mean_r@1"], -point["alpha"]))["alpha"],
    }


def _ranks(found: Features, pairs: tuple[list[np.ndarray], list[np.ndarray]]) -> dict[str, np.ndarray]:
    return {
        "i2t": best_ranks(found.images, found.captions, pairs[0]),
        "t2i": best_ranks(found.captions, found.images, pairs[1]),
    }


def _difference(
    seen: Seen, ranks: list[dict[str, np.ndarray]], retrievers: Sequence[Named], seed: int
) -> dict[str, Any]:
    ids = {"i2t": seen.images, "t2i": [caption.identity for caption in seen.captions]}
    by_id = [{d: dict(zip(ids[d], found[d].tolist(), strict=True)) for d in ids} for found in ranks]
    first, second = (named.label for named in retrievers)
    return compare(by_id[0], by_id[1], (first, second), seed=seed)


def _with(retrievers: Sequence[Named], metrics: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {named.label: {**named.facts(), "metrics": found} for named, found in zip(retrievers, metrics, strict=True)}


def _mean(metrics: dict[str, Any]) -> float:
    return round(float(np.mean([metrics[d]["r@1"] for d in ("i2t", "t2i")])), 3)
