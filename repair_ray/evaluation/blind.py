"""Can a reader who never sees the picture tell an edited caption from its source?

Where it can, edits leave a trace in the text alone, and a retriever may learn the trace in place of the picture. After
SugarCrepe (Hsieh et al. 2023), whose text-only models solve earlier benchmarks; the classifier is ours: a logistic
regression on counts of character and word n-grams, over the difference of the two texts of a pair, cross-validated.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from scipy import optimize, sparse, special, stats

from repair_ray.evaluation.agreement import share

MIN_PAIRS = 50
MAX_PAIRS = 20_000
FOLDS = 10
# Penalty of the squared weights, against the mean loss of a pair.
L2 = 1e-2
CHARACTERS = (1, 2, 3, 4)
TELLING = 10
START, END = "⟨", "⟩"
_WORD = re.compile(r"\w+(?:['’-]\w+)*|[^\w\s]")

Gram = tuple[str, str]  # its kind, "word" or "character", and its text


class BlindError(ValueError):
    """The pairs do not allow the measurement; the message says why."""


@dataclass(frozen=True)
class Pair:
    """An edited caption with its source, and the pictures (their groups) that either is about."""

    edited: str
    source: str
    groups: frozenset[str]
    query: str


def blind_baseline(pairs: Sequence[Pair], seed: int = 0) -> dict[str, Any]:
    """Cross-validated accuracy over pairs (chance is 50 %), AUC over texts, lengths, and the most telling n-grams.

    Folds are of queries, and a fold is predicted by a classifier that has seen no caption of any picture in it, on
    either side of a pair. Equal scores are decided by a coin. Of more than `MAX_PAIRS` pairs, so many are drawn.

    Raises:
        BlindError: fewer than `MIN_PAIRS` pairs, or pictures so entangled that a fold leaves nothing to learn from.
    """
    if len(pairs) < MIN_PAIRS:
        raise BlindError(f"{len(pairs)} pairs are too few to tell anything; at least {MIN_PAIRS} are needed")
    rng = np.random.default_rng(seed)
    if len(pairs) > MAX_PAIRS:
        pairs = [pairs[i] for i in sorted(rng.choice(len(pairs), MAX_PAIRS, replace=False))]
    edited, source, grams = _count([pair.edited for pair in pairs], [pair.source for pair in pairs])
    difference = (edited - source).tocsr()
    gains, scores, trained = np.zeros(len(pairs)), np.zeros((2, len(pairs))), []
    for train, test in _folds(pairs, rng):
        weights = _fit(difference[train])
        gains[test] = difference[test] @ weights
        scores[:, test] = edited[test] @ weights, source[test] @ weights
        trained.append(len(train))
    ties = np.abs(gains) < 1e-12
    right = np.where(ties, rng.random(len(pairs)) < 0.5, gains > 0)
    words = np.array([[len(_words(text)) for text in (pair.edited, pair.source)] for pair in pairs])
    return {
        "pairs": len(pairs),
        "queries": len({pair.query for pair in pairs}),
        "trained_on": round(float(np.mean(trained)), 1),
        "accuracy": share(int(right.sum()), len(pairs)),
        "ties": int(ties.sum()),
        "auc": round(float(stats.mannwhitneyu(scores[0], scores[1]).statistic) / len(pairs) ** 2, 4),
        "more_words": round(float((words[:, 0] - words[:, 1]).mean()), 3),
        "telling": _telling(difference, grams),
    }


def _words(text: str) -> list[str]:
    return [token for token in _WORD.findall(text) if token[0].isalnum()]


def _grams(text: str) -> Counter[Gram]:
    """Words and marks with their neighbours, and runs of characters; case, marks and both ends count."""
    tokens = _WORD.findall(text)
    found: Counter[Gram] = Counter(("word", token) for token in tokens)
    found.update(("word", f"{one} {two}") for one, two in pairwise(tokens))
    framed = f"{START}{text}{END}"
    found.update(("character", framed[i : i + n]) for n in CHARACTERS for i in range(len(framed) - n + 1))
    return found


def _count(edited: Sequence[str], source: Sequence[str]) -> tuple[sparse.csr_array, sparse.csr_array, list[Gram]]:
    """Counts of the n-grams by which at least two pairs differ, for both sides `[pairs, n-grams]`."""
    counted = [(_grams(one), _grams(two)) for one, two in zip(edited, source, strict=True)]
    differing: Counter[Gram] = Counter()
    for one, two in counted:
        differing.update(gram for gram in one.keys() | two.keys() if one[gram] != two[gram])
    grams = sorted(gram for gram, pairs in differing.items() if pairs > 1)
    place = {gram: i for i, gram in enumerate(grams)}
    sides = [_matrix([pair[side] for pair in counted], place) for side in (0, 1)]
    return sides[0], sides[1], grams


def _matrix(counts: Sequence[Counter[Gram]], place: dict[Gram, int]) -> sparse.csr_array:
    entries = [(row, place[gram], n) for row, one in enumerate(counts) for gram, n in one.items() if gram in place]
    rows, columns, values = np.array(entries, float).reshape(-1, 3).T
    return sparse.csr_array((values, (rows.astype(int), columns.astype(int))), shape=(len(counts), len(place)))


def _folds(pairs: Sequence[Pair], rng: np.random.Generator) -> list[tuple[np.ndarray, np.ndarray]]:
    """Indices of the pairs to train on and to test on: no picture of the test is among those trained on."""
    queries = sorted({pair.query for pair in pairs})
    parts = np.array_split(rng.permutation(len(queries)), min(FOLDS, len(queries)))
    fold_of = {queries[i]: fold for fold, part in enumerate(parts) for i in part}
    folds = []
    for fold in range(len(parts)):
        test = [i for i, pair in enumerate(pairs) if fold_of[pair.query] == fold]
        shown = frozenset().union(*(pairs[i].groups for i in test))
        train = [i for i, pair in enumerate(pairs) if not pair.groups & shown]
        if len(train) < MIN_PAIRS // 2:
            raise BlindError(
                f"a fold of {len(test)} pairs shares pictures with all but {len(train)} of the {len(pairs)}: "
                "too few pairs are left to learn from; more edits, of more pictures, are needed"
            )
        folds.append((np.array(train), np.array(test)))
    return folds


def _fit(difference: sparse.csr_array) -> np.ndarray:
    """Weights by which the edited text of a pair scores above its source: L2-regularised logistic regression."""
    transposed = difference.T.tocsr()
    n, start = difference.shape[0], np.zeros(difference.shape[1])
    if not start.size:
        return start

    def loss(weights: np.ndarray) -> float:
        return float(-special.log_expit(difference @ weights).mean() + L2 / 2 * (weights @ weights))

    def slope(weights: np.ndarray) -> np.ndarray:
        return np.asarray(L2 * weights - transposed @ special.expit(-(difference @ weights)) / n)

    def curvature(weights: np.ndarray, along: np.ndarray) -> np.ndarray:
        sure = special.expit(difference @ weights)
        return np.asarray(L2 * along + transposed @ (sure * (1 - sure) * (difference @ along)) / n)

    found: np.ndarray = optimize.minimize(loss, start, jac=slope, hessp=curvature, method="Newton-CG").x
    return found


def _telling(difference: sparse.csr_array, grams: Sequence[Gram]) -> dict[str, list[dict[str, Any]]]:
    """What gives each side away, of all pairs together, words first; of each kind the strongest first.

    `pairs`: how many have it more often on this side, `pairs_other`: on the other.
    """
    weights = _fit(difference)
    signs = difference.sign()
    more, less = (np.asarray((signs == sign).sum(axis=0), int).ravel() for sign in (1, -1))
    return {"edited": _strongest(grams, weights, more, less), "source": _strongest(grams, -weights, less, more)}


def _strongest(
    grams: Sequence[Gram], weights: np.ndarray, there: np.ndarray, other: np.ndarray
) -> list[dict[str, Any]]:
    # A weight counts by how often it decides: rare n-grams get large ones by chance.
    strength = np.round(weights * (there + other), 6)
    found: dict[tuple[object, ...], dict[str, Any]] = {}
    telling = [int(i) for i in np.flatnonzero((strength > 0) & (there > other))]
    for i in sorted(telling, key=lambda i: (-strength[i], -len(grams[i][1]), grams[i])):
        kind, text = grams[i]
        facts = {"weight": round(float(weights[i]), 4), "pairs": int(there[i]), "pairs_other": int(other[i])}
        # Of n-grams that come and go together, only the longest.
        found.setdefault((kind, *facts.values()), {"kind": kind, "text": text, **facts})
    return [
        gram for kind in ("word", "character") for gram in [g for g in found.values() if g["kind"] == kind][:TELLING]
    ]
