"""Who belongs to whom: by group and equal text, or by a ground-truth file that lists each query's right answers."""

from __future__ import annotations

import csv
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

from repair_ray.data.records import DataError

# CxC's own threshold: from 3 of 5 on, a pair counts as right (arXiv 2004.15020).
MIN_RATING = 3.0
CXC_COLUMNS = ("caption", "image", "agg_score")
SHOWN = 3

_NUMBER = re.compile(r"(\d+)(?:\.[A-Za-z]+)?$")


@dataclass(frozen=True)
class Answers(Sequence[np.ndarray]):
    """The right answers of each query, as ascending places in the gallery.

    Queries of one class share their answers: those of query `q` are `members[starts[c] : starts[c + 1]]` with
    `c = kind[q]`, all int64. So a text that many captions share takes no more room than one that is unique.
    """

    kind: np.ndarray
    starts: np.ndarray
    members: np.ndarray

    def __len__(self) -> int:
        return len(self.kind)

    def __getitem__(self, query: Any) -> Any:
        """The answers of one query, int64."""
        first = self.kind[query]
        return self.members[self.starts[first] : self.starts[first + 1]]

    def counts(self, queries: np.ndarray) -> np.ndarray:
        """How many answers each of `queries` int64 `[N]` has."""
        kind = self.kind[queries]
        return self.starts[kind + 1] - self.starts[kind]

    def flat(self, queries: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """All answers of `queries` int64 `[N]` one after another: whose each is (0 to N - 1), and the answer."""
        counts = self.counts(queries)
        owner = np.repeat(np.arange(len(queries)), counts)
        within = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
        return owner, self.members[self.starts[self.kind[queries]][owner] + within]


def known_answers(
    image_groups: np.ndarray, caption_groups: np.ndarray, texts: np.ndarray, images: np.ndarray, captions: np.ndarray
) -> tuple[Answers, Answers]:
    """Who belongs to whom: by group, and by equal text across groups. For images, then for captions.

    Args:
        image_groups, caption_groups: number of the group of every image and caption that is known, from 0.
        texts: number of each caption's text.
        images, captions: which of those stand in the galleries and ask, in their order there.
    """
    groups = 1 + int(max(image_groups.max(initial=-1), caption_groups.max(initial=-1)))
    of_text = _incidence(texts, caption_groups, (1 + int(texts.max(initial=-1)), groups))
    with_image = _incidence(image_groups[images], np.arange(len(images)), (groups, len(images)))
    with_caption = _incidence(texts[captions], np.arange(len(captions)), (of_text.shape[0], len(captions)))
    return (
        _answers(image_groups[images], of_text.T.tocsr() @ with_caption),
        _answers(texts[captions], of_text @ with_image),
    )


def _incidence(rows: np.ndarray, columns: np.ndarray, shape: tuple[int, int]) -> csr_matrix:
    return csr_matrix((np.ones(len(rows), bool), (rows, columns)), shape)


def _answers(kind: np.ndarray, members: csr_matrix) -> Answers:
    members.sort_indices()
    return Answers(kind.astype(np.int64), members.indptr.astype(np.int64), members.indices.astype(np.int64))


def known_positives(
    images: Iterable[tuple[str, str]], captions: Iterable[tuple[str, str, str]]
) -> tuple[dict[str, frozenset[str]], dict[str, frozenset[str]]]:
    """The positives of each image and of each caption, as ids: by group, and by equal text across groups.

    Args:
        images: id and group of each.
        captions: id, group and text key (`data.text.text_key`) of each.
    """
    images, captions = list(images), list(captions)
    groups: dict[str, int] = {}
    texts: dict[str, int] = {}
    image_groups = np.array([groups.setdefault(group, len(groups)) for _, group in images], np.int64)
    caption_groups = np.array([groups.setdefault(group, len(groups)) for _, group, _ in captions], np.int64)
    keys = np.array([texts.setdefault(text, len(texts)) for _, _, text in captions], np.int64)
    image_ids, caption_ids = [row[0] for row in images], [row[0] for row in captions]
    every = np.arange(len(images)), np.arange(len(captions))
    of_image, of_caption = known_answers(image_groups, caption_groups, keys, *every)
    return (
        {name: frozenset(caption_ids[i] for i in own) for name, own in zip(image_ids, of_image, strict=True)},
        {name: frozenset(image_ids[i] for i in own) for name, own in zip(caption_ids, of_caption, strict=True)},
    )


@dataclass(frozen=True)
class GroundTruth:
    """The right answers of one direction by the names that a file uses: `{query name: (answer names)}`.

    `adds`: whether the file adds to each query's own pair (CxC's ratings) or lists all that is right (ECCV).
    """

    answers: dict[str, tuple[str, ...]]
    source: str
    adds: bool = False


def read_ground_truth(path: Path) -> GroundTruth:
    """A JSON object `{id: [ids]}`, as ECCV Caption's `eccv_image_to_caption.json`; ids are numbers or texts.

    Raises:
        DataError: unreadable, or not of this form; names the key.
    """
    try:
        tree = json.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError) as error:
        raise DataError(f"cannot read {path} as JSON: {error}") from None
    if not isinstance(tree, dict) or not tree:
        raise DataError(f"{path} must hold an object of id: [ids], not {type(tree).__name__}")
    answers = {}
    for key, found in tree.items():
        if not isinstance(found, list) or any(isinstance(v, bool) or not isinstance(v, int | str) for v in found):
            raise DataError(f"{path}: the answers of {key!r} are no list of ids")
        # A repeated id would count twice as one more answer to find.
        answers[str(key)] = tuple(dict.fromkeys(str(answer) for answer in found))
    return GroundTruth(answers, str(path))


def read_ratings(path: Path, least: float = MIN_RATING) -> dict[str, GroundTruth]:
    """CxC's `sits_*.csv` (caption, image, agg_score): pairs rated at least `least`, in both directions.

    Raises:
        DataError: unreadable, other columns, a rating that is no number (names the line).
    """
    pairs: dict[str, dict[str, list[str]]] = {"i2t": defaultdict(list), "t2i": defaultdict(list)}
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file)
            missing = [name for name in CXC_COLUMNS if name not in (reader.fieldnames or [])]
            if missing:
                raise DataError(f"{path} has no column {missing[0]!r}; found: {', '.join(reader.fieldnames or [])}")
            for row in reader:
                if _rating(row["agg_score"], path, reader.line_num) >= least:
                    pairs["i2t"][row["image"]].append(row["caption"])
                    pairs["t2i"][row["caption"]].append(row["image"])
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"cannot read {path} as CSV: {error}") from None
    return {
        direction: GroundTruth({q: tuple(dict.fromkeys(a)) for q, a in found.items()}, str(path), adds=True)
        for direction, found in pairs.items()
    }


def _rating(text: str | None, path: Path, line: int) -> float:
    try:
        return float(text or "")
    except ValueError:
        raise DataError(f"{path}, line {line}: agg_score {text!r} is no number") from None


def number_of(name: str) -> str | None:
    """The number that a name ends with, as COCO numbers pictures and captions: `COCO_val2014_000000391895.jpg` is
    391895, `COCO_val2014:sentid:732091` is 732091. None where there is none, and for a caption's place (`a.jpg#3`)."""
    found = None if "#" in name else _NUMBER.search(name)
    return str(int(found[1])) if found else None


class Names:
    """Finds items by any of their names: as written, or by the number that a name ends with."""

    def __init__(self, names: Sequence[Iterable[str]]) -> None:
        """`names`: of each item, in order. A number that two items share finds neither."""
        self._exact: dict[str, int] = {}
        numbers: dict[str, set[int]] = defaultdict(set)
        for place, own in enumerate(names):
            for name in own:
                self._exact.setdefault(name, place)
                if (number := number_of(name)) is not None:
                    numbers[number].add(place)
        self._numbers = {number: next(iter(found)) for number, found in numbers.items() if len(found) == 1}

    def find(self, name: str) -> int | None:
        """The place of an item, or None."""
        if name in self._exact:
            return self._exact[name]
        # Other names that end in the same number may be of something else: `a_1.jpg`, `b_1.jpg`.
        number = number_of(name) if name.isdecimal() or name.startswith("COCO_") else None
        return None if number is None else self._numbers.get(number)


@dataclass(frozen=True)
class Matched:
    """Ground truth in the places of a data set: `queries` int64 `[Q]`, and for each the places of its answers.

    `facts` counts what the file names and the data set lacks, with a few of the names.
    """

    queries: np.ndarray
    positives: list[np.ndarray]
    facts: dict[str, object]


def match(truth: GroundTruth, queries: Names, gallery: Names, own: Sequence[np.ndarray]) -> Matched:
    """Bring a file's names to the places of a data set; `own`: the answers that each query has without the file.

    Raises:
        DataError: none of the file's queries is in the data set, or none of its answers.
    """
    found: dict[int, set[int]] = {}
    lost_queries: list[str] = []
    lost_answers: dict[str, None] = {}
    for name, answers in truth.answers.items():
        query = queries.find(name)
        if query is None:
            lost_queries.append(name)
            continue
        places = {answer: gallery.find(answer) for answer in answers}
        lost_answers.update((answer, None) for answer, place in places.items() if place is None)
        found.setdefault(query, set()).update(place for place in places.values() if place is not None)
    for what, none in (("queries", not found), ("answers", bool(found) and not any(found.values()))):
        if none and truth.answers:
            examples = lost_queries if what == "queries" else list(lost_answers)
            raise DataError(
                f"none of the {what} of {truth.source}, such as {', '.join(examples[:SHOWN])}, is in the data set: "
                "another split, or ids that the data set does not carry (name a file that does: --ids)"
            )
    if truth.adds:
        for query, places_of in enumerate(own):
            found.setdefault(query, set()).update(places_of.tolist())
    asked = sorted(found)
    return Matched(
        np.array(asked, np.int64),
        [np.array(sorted(found[query]), np.int64) for query in asked],
        {
            "file": truth.source,
            "listed": len(truth.answers),
            "missing_queries": {"n": len(lost_queries), "such_as": lost_queries[:SHOWN]},
            "missing_answers": {"n": len(lost_answers), "such_as": list(lost_answers)[:SHOWN]},
        },
    )
