"""Words and what is like them, as the rows of their tables, and back."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

from repair_ray import tables
from repair_ray.engines.san.prototypes import Likeness
from repair_ray.engines.san.totals import WordTotals
from repair_ray.engines.san.vocabulary import Form
from repair_ray.engines.words import Key
from repair_ray.run import Run


def form_rows(forms: Counter[Form]) -> list[dict[str, Any]]:
    """The forms of a word as its tables hold them."""
    return [{"tag": tag, "text": text, "count": count} for (tag, text), count in sorted(forms.items())]


def prototype_rows(totals: WordTotals, *, visual: bool) -> list[dict[str, Any]]:
    """The rows of a `prototypes` table; `visual`: a word without a prototype is a rejected row."""
    vectors = totals.sums.vectors()
    rows: list[dict[str, Any]] = []
    for place, key in enumerate(totals.keys):
        forms, count, best = totals.forms[key], int(totals.sums.matches[place]), float(totals.sums.best[place])
        by_text: Counter[str] = Counter()
        for (_, text), seen in forms.items():
            by_text[text] += seen
        unmatched = visual and not count
        rows.append(
            {
                "word_id": tables.row_id(*key),
                "word": min(by_text, key=lambda text: (-by_text[text], text)),
                "lemma": key[0],
                "pos": key[1],
                "images": totals.items[place],
                "matches": count,
                "best": best if np.isfinite(best) else None,
                "vector": vectors[place] if count else totals.text_vectors.get(key),
                "forms": form_rows(forms),
                "status": tables.REJECTED if unmatched else tables.OK,
                "reason": "no visual token is as near to it as negatives.alpha" if unmatched else None,
            }
        )
    return rows


def pair_rows(totals: WordTotals, found: Sequence[Likeness]) -> list[dict[str, Any]]:
    """The rows of a `confusable` table; a word that has none is a rejected row."""
    rows: list[dict[str, Any]] = []
    ranks: dict[int, int] = {}
    for pair in found:
        (word, pos), (other, _) = totals.keys[pair.word], totals.keys[pair.other]
        ranks[pair.word] = ranks.get(pair.word, 0) + 1
        rows.append(
            {
                "pair_id": tables.row_id(word, pos, other),
                "word": word,
                "pos": pos,
                "other": other,
                "rank": ranks[pair.word],
                "cosine": pair.cosine,
                "status": tables.OK,
            }
        )
    for place, (word, pos) in enumerate(totals.keys):
        if place not in ranks:
            none = {"status": tables.REJECTED, "reason": "no word is like it"}
            rows.append({"pair_id": tables.row_id(word, pos, None), "word": word, "pos": pos, **none})
    return rows


def read_alike(run: Run, product: str) -> dict[Key, list[Key]]:
    """The words that may stand in for each word, nearest first, of a `confusable` table."""
    found: dict[Key, list[Key]] = defaultdict(list)
    for row in run.read(product).to_pylist():
        if row["status"] == tables.OK:
            found[row["word"], row["pos"]].append((row["other"], row["pos"]))
    return dict(found)


def read_forms(run: Run, product: str) -> dict[Key, dict[Form, int]]:
    """The forms of each word of a `prototypes` table, with how often each was seen."""
    return {
        (row["lemma"], row["pos"]): {(form["tag"], form["text"]): form["count"] for form in row["forms"]}
        for row in run.read(product, ["lemma", "pos", "forms"]).to_pylist()
    }
