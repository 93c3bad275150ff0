"""The fine-grained stress test: does an item prefer its caption to those with one word put for another (methods, 3)?

Only items are asked. A substituted caption has no item of its own, so that the other direction is not defined; ordinary
retrieval measures both.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from repair_ray.data.records import DataError
from repair_ray.engines.san.items import negatives_of
from repair_ray.engines.san.vocabulary import Forms
from repair_ray.engines.words import Key, Language
from repair_ray.evaluation.retrieval import TIE

TIE_RULE = "a tie is wrong"
FORMAT = "repair_ray stress set 1"
FIELDS = ("item", "caption_id", "caption", "negatives")


@dataclass(frozen=True)
class StressItem:
    """One question: the item's id, its caption with its id, and the caption's substitutions."""

    item: str
    caption_id: str
    caption: str
    negatives: tuple[str, ...]


@dataclass(frozen=True)
class StressSet:
    """The questions, who said which words are confusable (`oracle`), and why other captions gave none."""

    items: list[StressItem]
    oracle: dict[str, Any]
    settings: dict[str, Any]
    left_out: dict[str, int]

    def digest(self) -> str:
        """16 hex digits, equal for the same questions in the same order."""
        lines = [json.dumps(asdict(item), sort_keys=True) for item in self.items]
        return hashlib.sha256("\n".join(lines).encode("utf-8", "surrogatepass")).hexdigest()[:16]


@dataclass(frozen=True)
class Captioned:
    """An item with its captions, as `(id, text)`, and what other items of its group say."""

    item: str
    captions: Sequence[tuple[str, str]]
    others: Sequence[str] = ()


def build(
    captioned: Iterable[Captioned],
    language: Language,
    alike: Mapping[Key, Sequence[Key]],
    forms: Forms,
    *,
    n_hard: int,
    n_swap: int,
    seed: int,
) -> tuple[list[StressItem], dict[str, int]]:
    """A question for each caption that has a substitution, and how many have none, by reason."""
    items: list[StressItem] = []
    left_out: Counter[str] = Counter()
    for found in captioned:
        texts = [text for _, text in found.captions]
        seeds = [f"{seed} {identity}" for identity, _ in found.captions]
        made = negatives_of(texts, seeds, found.others, language, alike, forms, n_hard=n_hard, n_swap=n_swap)
        for (identity, text), answer in zip(found.captions, made, strict=True):
            if answer.negatives:
                negatives = tuple(negative.text for negative in answer.negatives)
                items.append(StressItem(found.item, identity, text, negatives))
            else:
                left_out[answer.reason or "none"] += 1
    return items, dict(left_out)


def save(path: Path, made: StressSet) -> None:
    """Write a stress set as JSON lines: first what it was made with, then one question a line."""
    head = {"format": FORMAT, "oracle": made.oracle, "settings": made.settings, "left_out": made.left_out}
    lines = [json.dumps(value, ensure_ascii=False) for value in (head, *map(asdict, made.items))]
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text("\n".join(lines) + "\n", encoding="utf-8")
    temporary.replace(path)


def load(path: Path) -> StressSet:
    """Read what `save` wrote. Raises DataError: unreadable, or no stress set; names the line."""
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot read {path}: {error}") from None
    rows = []
    for number, line in enumerate(lines, start=1):
        if line.strip():
            try:
                rows.append((number, json.loads(line)))
            except ValueError as error:
                raise DataError(f"{path}, line {number} is not JSON: {error}") from None
    head = rows[0][1] if rows else None
    if not isinstance(head, dict) or head.get("format") != FORMAT:
        raise DataError(f"{path} is no stress set: its first line must say {FORMAT!r}")
    items = [_item(row, f"{path}, line {number}") for number, row in rows[1:]]
    if not items:
        raise DataError(f"{path} holds no question")
    return StressSet(items, head.get("oracle") or {}, head.get("settings") or {}, head.get("left_out") or {})


def _item(row: Any, where: str) -> StressItem:
    item, caption_id, caption, negatives = [row.get(name) if isinstance(row, dict) else None for name in FIELDS]
    if not all(isinstance(text, str) and text for text in (item, caption_id, caption)):
        raise DataError(f"{where}: item, caption_id and caption must be texts")
    if not isinstance(negatives, list) or not negatives or not all(isinstance(text, str) for text in negatives):
        raise DataError(f"{where}: negatives is no list of texts")
    return StressItem(str(item), str(caption_id), str(caption), tuple(negatives))


def stress_ranks(items: np.ndarray, captions: np.ndarray, negatives: np.ndarray, owners: np.ndarray) -> np.ndarray:
    """Rank of each question's caption among its substitutions: 1 + those that do not score below it, int64 `[N]`.

    Args:
        items, captions: unit features `[N, D]` of each question's item and caption.
        negatives: unit features `[M, D]` of all substitutions; owners: int `[M]`, the question of each.
    """
    right = np.einsum("nd,nd->n", items.astype(np.float32), captions.astype(np.float32))
    wrong = np.einsum("md,md->m", items[owners].astype(np.float32), negatives.astype(np.float32))
    with np.errstate(invalid="ignore"):
        # "not below" rather than "at least": scores that are not finite are wrong, not right.
        beaten = wrong < right[owners] - TIE
    return 1 + np.bincount(owners[~beaten], minlength=len(items))


def ask(
    asked: StressSet,
    place: Mapping[str, int],
    features: np.ndarray,
    encode: Callable[[list[str]], np.ndarray],
    *,
    bootstrap: int = 1000,
    seed: int = 0,
) -> dict[str, Any]:
    """The figures of one retriever on the questions of items that are there; see `stress_metrics`.

    Args:
        place: where an item lies in `features [I, D]`; encode: texts to unit features.

    Raises:
        ValueError: none of the items is there.
    """
    items = [item for item in asked.items if item.item in place]
    texts = list(dict.fromkeys(text for item in items for text in (item.caption, *item.negatives)))
    number = {text: n for n, text in enumerate(texts)}
    vectors = encode(texts) if texts else np.zeros((0, features.shape[1]), np.float32)
    options = np.array([1 + len(item.negatives) for item in items], np.int64)
    ranks = stress_ranks(
        features[[place[item.item] for item in items]],
        vectors[[number[item.caption] for item in items]],
        vectors[[number[text] for item in items for text in item.negatives]],
        np.repeat(np.arange(len(items)), options - 1),
    )
    return stress_metrics(ranks, [item.item for item in items], options, bootstrap=bootstrap, seed=seed)


def stress_metrics(
    ranks: np.ndarray, asked: Sequence[str], options: np.ndarray, *, bootstrap: int = 1000, seed: int = 0
) -> dict[str, Any]:
    """Fine-grained R@1 and MRR in percent, with a 95 % bootstrap interval of R@1 that resamples items.

    Args:
        ranks: `[N]`; asked: the item of each question, whose questions stay together in a resample.
        options: how many captions each question chooses from, `[N]`.

    Raises:
        ValueError: there is no question.
    """
    if not len(ranks):
        raise ValueError("there is no question to ask")
    _, place = np.unique(np.asarray(asked), return_inverse=True)
    hits = (ranks == 1).astype(np.float64)
    low, high = _interval(np.bincount(place, hits), np.bincount(place).astype(np.float64), bootstrap, seed)
    return {
        "r@1": round(100 * float(hits.mean()), 3),
        "r@1_ci": [round(100 * low, 3), round(100 * high, 3)],
        "mrr": round(100 * float((1 / ranks).mean()), 3),
        "chance": round(100 * float((1 / options).mean()), 3),
        "n": len(ranks),
        "items": len(np.unique(place)),
    }


def _interval(hits: np.ndarray, counts: np.ndarray, resamples: int, seed: int) -> tuple[float, float]:
    """Percentile bootstrap interval of all hits over all questions, resampling items."""
    shares = hits / counts
    if len(hits) < 2 or np.ptp(shares) == 0:
        return float(hits.sum() / counts.sum()), float(hits.sum() / counts.sum())
    result = stats.bootstrap(
        (hits, counts),
        lambda h, c, axis: h.sum(axis=axis) / c.sum(axis=axis),
        paired=True,
        vectorized=True,
        n_resamples=resamples,
        method="percentile",
        batch=64,
        rng=np.random.default_rng(seed),
    )
    return float(result.confidence_interval.low), float(result.confidence_interval.high)


def circular(oracle: Mapping[str, Any], miners: Iterable[tuple[str, Mapping[str, Any]]]) -> str | None:
    """Why a stress test by this oracle says little: it is what made the negatives that were trained on, or what is
    measured. None where neither is so.

    Args:
        miners: names of retrievers or lists, with what identifies each (as `oracle` is identified).
    """
    kind = oracle.get("kind")
    keys = ("digest",) if kind == "list" else ("model", "weights")
    for name, facts in miners:
        if kind is not None and facts.get("kind") == kind and all(oracle.get(key) == facts.get(key) for key in keys):
            return f"circular: the oracle is {name}"
    return None
