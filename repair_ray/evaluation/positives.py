"""Who belongs to whom: by group and equal text, or by a ground-truth file that lists each query's right answers."""

from __future__ import annotations

import csv
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from repair_ray.data.records import DataError

# CxC's own threshold: from 3 of 5 on, a pair counts as right (arXiv 2004.15020).
MIN_RATING = 3.0
CXC_COLUMNS = ("caption", "image", "agg_score")
SHOWN = 3

_NUMBER = re.compile(r"(\d+)(?:\.[A-Za-z]+)?$")


def known_positives(
    images: Iterable[tuple[str, str]], captions: Iterable[tuple[str, str, str]]
) -> tuple[dict[str, frozenset[str]], dict[str, frozenset[str]]]:
    """The positives of each image and of each caption, as ids: by group, and by equal text across groups.

    Args:
        images: id and group of each.
        captions: id, group and text key (`data.text.text_key`) of each.
    """
    images, captions = list(images), list(captions)
    groups_of_text, images_of_group = defaultdict(set), defaultdict(set)
    for _, group, text in captions:
        groups_of_text[text].add(group)
    for image, group in images:
        images_of_group[group].add(image)
    of_caption = {
        caption: frozenset().union(*(images_of_group[group] for group in groups_of_text[text]))
        for caption, _, text in captions
    }
    of_image: dict[str, set[str]] = {image: set() for image, _ in images}
    for caption, found in of_caption.items():
        for image in found:
            of_image[image].add(caption)
    return {image: frozenset(found) for image, found in of_image.items()}, of_caption


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
