"""Spearman's correlation of retrievers' text towers on scored pairs of sentences."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from repair_ray.config import TextConfig, parse_section
from repair_ray.data.records import DataError, Problem
from repair_ray.data.sts import Columns, SentencePair, read_sts
from repair_ray.evaluation.protocols import SCORES
from repair_ray.evaluation.sts import pair_cosines, shared_words, spearman, sts_metrics
from repair_ray.measuring.retrievers import Named, Which, load_all, retrievers_of
from repair_ray.measuring.sources import Unused
from repair_ray.run import Run, RunError, read_json
from repair_ray.training.texts.job import TEXT_CONFIG, start_spec, trained_spec

if TYPE_CHECKING:
    from repair_ray.engines.encoder import Encoder

BOOTSTRAP = 1000
TIE_RULE = "equal values share their mean rank"


def text_retrievers_of(target: str, which: Which, pretrained: str | None, precision: str | None) -> list[Named]:
    """As `retrievers_of`; of a text-only run its text tower before (where it had weights) and after training.

    Raises:
        RunError: the run is not trained yet, it began without weights, or settings that do not go together.
    """
    tree = read_json(Path(target) / TEXT_CONFIG)
    if tree is None:
        return retrievers_of(target, which, pretrained, precision)
    if pretrained is not None or precision is not None:
        raise RunError(f"{target} is a run, whose text tower has weights of its own: leave --pretrained out")
    config = parse_section(TextConfig, tree, source=f"{target}/{TEXT_CONFIG}")
    before = start_spec(config)
    if which == "base" and before.weights is None:
        raise RunError(f"{target} began without weights: there is nothing to measure before its training")
    batch = config.retriever.batch_size
    found = [] if which == "repaired" or before.weights is None else [Named("base", before, batch)]
    return found if which == "base" else [*found, Named("trained", trained_spec(Run(target), config), batch)]


def sts(
    retrievers: Sequence[Named],
    path: str,
    columns: Columns | None = None,
    *,
    bootstrap: int = BOOTSTRAP,
    seed: int = 0,
) -> dict[str, Any]:
    """Spearman x 100 of cosines and scores, for all pairs and for each SemEval subset; and what shared words give.

    Raises:
        DataError: as reading, or no usable pair; names what was wrong. RetrieverError: as building.
    """
    pairs, unused = read_pairs(path, columns)
    facts = {
        "read_from": path,
        "pairs": len(pairs),
        "unused": unused.facts(),
        "scores": SCORES,
        "ties": TIE_RULE,
        "bootstrap": bootstrap,
    }
    scores = np.array([pair.score for pair in pairs])
    words = shared_words([(pair.first, pair.second) for pair in pairs])
    found = {
        named.label: {**named.facts(), **measure(encoder, pairs, bootstrap, seed)}
        for named, encoder in zip(retrievers, load_all(retrievers), strict=True)
    }
    return {"protocol": facts, "retrievers": found, "shared_words": sts_metrics(words, scores, bootstrap, seed)}


def read_pairs(path: str, columns: Columns | None = None) -> tuple[list[SentencePair], Unused]:
    """The usable pairs of a file, and what could not be used. Raises `DataError` where there is no usable pair."""
    pairs, unused = [], Unused()
    for item in read_sts(path, columns):
        if isinstance(item, Problem):
            unused.add(item.reason, item.source)
        else:
            pairs.append(item)
    if not pairs:
        raise DataError(f"no pair of {path} can be used: {unused.examples()}")
    return pairs, unused


def measure(
    encoder: Encoder, pairs: Sequence[SentencePair], bootstrap: int = BOOTSTRAP, seed: int = 0
) -> dict[str, Any]:
    """The metrics of one retriever, those of each subset where there are several, and how many texts were cut."""
    texts = list(dict.fromkeys(text for pair in pairs for text in (pair.first, pair.second)))
    place = {text: n for n, text in enumerate(texts)}
    features = encoder.encode_texts(texts)
    first, second = (features[[place[getattr(pair, side)] for pair in pairs]] for side in ("first", "second"))
    cosines, scores = pair_cosines(first, second), np.array([pair.score for pair in pairs])
    subsets: dict[str, list[int]] = {}
    for n, pair in enumerate(pairs):
        subsets.setdefault(pair.subset, []).append(n)
    parts = {
        name: {"n": len(rows), "spearman": spearman(cosines[rows], scores[rows])} for name, rows in subsets.items()
    }
    return {
        "metrics": sts_metrics(cosines, scores, bootstrap, seed),
        "subsets": parts if len(parts) > 1 else {},
        "truncated": sum(encoder.preprocess.truncated(text) for text in texts),
    }
