"""SugarCrepe, ARO, Winoground, zero-shot classification: cases from files, scores from retrievers, facts for both."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from repair_ray.config import DataConfig
from repair_ray.data.access import image_store
from repair_ray.data.class_folders import read_class_folders
from repair_ray.data.compositional import SUGAR_CREPE, Box, Case, read_aro, read_sugarcrepe, read_winoground
from repair_ray.data.images import ImageProblem
from repair_ray.data.records import DataError
from repair_ray.data.store import ImageStore
from repair_ray.evaluation import zeroshot as zero
from repair_ray.evaluation.compositional import (
    MIN_ATTRIBUTE_CASES,
    TIE_RULE,
    accuracy,
    by_group,
    macro,
    options_right,
)
from repair_ray.evaluation.compositional import winoground as winoground_right
from repair_ray.evaluation.protocols import SCORES
from repair_ray.evaluation.retrieval import TIE_RULE as RANKING_TIES
from repair_ray.measuring.encoding import CHUNK, Encodes, chunks, encode_pictures
from repair_ray.measuring.retrievers import Named, load_all
from repair_ray.measuring.sources import Unused

Key = tuple[str, Box | None]
SUFFIXES = ("", ".png", ".jpg")


@dataclass(frozen=True)
class Scored:
    """Cases whose pictures could all be opened, and their scores `[N, texts, images]` by each retriever."""

    cases: list[Case]
    scores: list[np.ndarray]
    listed: int
    missing: dict[str, Any]

    def facts(self) -> dict[str, Any]:
        return {"listed": self.listed, "scored": len(self.cases), "missing": self.missing}


def sugarcrepe(retrievers: Sequence[Named], path: Path, image_root: Path) -> dict[str, Any]:
    """Accuracy of each sub-set, and their macro mean, over the cases whose picture is there.

    Raises:
        DataError: broken files, or no picture at all.
    """
    subsets = read_sugarcrepe(path)
    encoders = load_all(retrievers)
    found = _score([case for cases in subsets.values() for case in cases], image_root, encoders)
    parts = {name: _part(found, name, len(cases)) for name, cases in subsets.items()}
    results = []
    for number in range(len(encoders)):
        right = {name: options_right(part.scores[number][:, :, 0]) for name, part in parts.items()}
        scored = {name: accuracy(found) for name, found in right.items()}
        results.append(
            {
                "subsets": scored,
                "macro": macro(scored),
                "macro_of": sum(part["percent"] is not None for part in scored.values()),
            }
        )
    facts = {
        **_protocol("SugarCrepe", path, image_root),
        **found.facts(),
        "subsets": {name: part.facts() for name, part in parts.items()},
        "absent_files": sorted(set(SUGAR_CREPE) - set(subsets)) if path.is_dir() else [],
    }
    return {"protocol": facts, "retrievers": _with(retrievers, results)}


def aro(
    retrievers: Sequence[Named], path: Path, image_root: Path, left_out: frozenset[str] = frozenset()
) -> dict[str, Any]:
    """Accuracy by relation or attributes with their macro average; of an order file, the accuracy over all cases.

    Args:
        left_out: relations that stay out of the average; the paper leaves out those that hold both ways.

    Raises:
        DataError: a broken file, or no picture at all.
    """
    kind, cases = read_aro(path)
    if left_out and kind != "relation":
        raise DataError(f"{path} has no relations to leave out: it is an ARO file of {kind}")
    encoders = load_all(retrievers)
    found = _score(cases, image_root, encoders)
    groups = [case.group for case in found.cases]
    least = MIN_ATTRIBUTE_CASES if kind == "attribution" else 1
    results = []
    for scores in found.scores:
        right = options_right(scores[:, :, 0])
        results.append(
            {"all": accuracy(right)} if kind == "order" else by_group(right, groups, min_cases=least, left_out=left_out)
        )
    facts = {**_protocol(f"ARO {kind}", path, image_root), **found.facts(), "kind": kind}
    if kind != "order":
        facts |= {"average": "macro", "min_cases": least}
    return {"protocol": facts, "retrievers": _with(retrievers, results)}


def winoground(retrievers: Sequence[Named], path: Path, image_root: Path) -> dict[str, Any]:
    """Text, image and group score; chance is 25, 25 and 16.7 %.

    Raises:
        DataError: a broken file, or no picture at all.
    """
    cases = read_winoground(path)
    encoders = load_all(retrievers)
    found = _score(cases, image_root, encoders)
    results = [{name: accuracy(right) for name, right in winoground_right(scores).items()} for scores in found.scores]
    return {
        "protocol": {**_protocol("Winoground", path, image_root), **found.facts()},
        "retrievers": _with(retrievers, results),
    }


def zeroshot(retrievers: Sequence[Named], path: Path, templates: Sequence[str] = zero.TEMPLATES) -> dict[str, Any]:
    """Zero-shot top-1 and top-5 of a folder of classes.

    Raises:
        DataError: no classes, or no picture that can be opened.
    """
    classes = read_class_folders(path)
    encoders = load_all(retrievers)
    labels, unused = [], Unused()
    parts: list[list[np.ndarray]] = [[] for _ in encoders]
    for chunk in chunks(_labelled(classes, path, unused), CHUNK):
        labels += [label for label, _ in chunk]
        for part, features in zip(parts, encode_pictures([picture for _, picture in chunk], encoders), strict=True):
            part.append(features)
    if not labels:
        raise DataError(f"no picture below {path} can be opened: {unused.examples()}")
    texts = zero.class_texts(list(classes), templates)
    results = []
    for encoder, part in zip(encoders, parts, strict=True):
        features = zero.class_features(encoder.encode_texts(texts), len(classes))
        results.append(zero.zero_shot_metrics(np.concatenate(part), np.array(labels), features))
    facts = {
        "benchmark": "zero-shot classification",
        "read_from": str(path),
        "images": len(labels),
        "classes": len(classes),
        "empty_classes": sum(not files for files in classes.values()),
        "templates": list(templates),
        "ties": RANKING_TIES,
        "scores": SCORES,
        "unused": unused.facts(),
    }
    return {"protocol": facts, "retrievers": _with(retrievers, results)}


def _labelled(classes: dict[str, list[str]], root: Path, unused: Unused) -> Iterator[tuple[int, Image.Image]]:
    store = _store(root)
    for label, files in enumerate(classes.values()):
        for file in files:
            try:
                yield label, store.rgb(file)
            except ImageProblem as problem:
                unused.add(problem.reason, file)


def _score(cases: list[Case], image_root: Path, encoders: Sequence[Encodes]) -> Scored:
    """Encode each picture (or part of one) and each text once, and score the cases whose pictures are there."""
    keys = list(dict.fromkeys((name, case.box) for case in cases for name in case.images))
    unused = Unused()
    place: dict[Key, int] = {}
    parts: list[list[np.ndarray]] = [[] for _ in encoders]
    for chunk in chunks(_opened(keys, _store(image_root), unused), CHUNK):
        for key, _ in chunk:
            place[key] = len(place)
        for part, features in zip(parts, encode_pictures([picture for _, picture in chunk], encoders), strict=True):
            part.append(features)
    kept = [case for case in cases if all((name, case.box) in place for name in case.images)]
    if not kept:
        raise DataError(
            f"none of the {len(cases)} cases can be scored: no picture is below {image_root}; "
            f"{unused.examples()}. Set --image-root to the folder of the pictures"
        )
    texts = list(dict.fromkeys(text for case in kept for text in case.texts))
    text_place = {text: n for n, text in enumerate(texts)}
    images = np.array([[place[name, case.box] for name in case.images] for case in kept])
    width = max(len(case.texts) for case in kept)
    # Cases with fewer options repeat their last one, which changes nothing.
    options = np.array([[text_place[text] for text in _padded(case.texts, width)] for case in kept])
    scores = [
        _products(np.concatenate(part), encoder.encode_texts(texts), images, options)
        for part, encoder in zip(parts, encoders, strict=True)
    ]
    missing = {**unused.facts(), "pictures": unused.places, "cases": len(cases) - len(kept)}
    return Scored(kept, scores, len(cases), missing)


def _padded(texts: tuple[str, ...], width: int) -> tuple[str, ...]:
    return texts + texts[-1:] * (width - len(texts))


def _products(images: np.ndarray, texts: np.ndarray, image: np.ndarray, text: np.ndarray) -> np.ndarray:
    """Scores `[N, texts, images]` of each case, a bounded number at a time."""
    found = [
        np.einsum("ntd,nid->nti", texts[text[start : start + CHUNK]], images[image[start : start + CHUNK]])
        for start in range(0, len(image), CHUNK)
    ]
    return np.concatenate(found)


def _part(found: Scored, group: str, listed: int) -> Scored:
    """The cases of one group; `listed`: how many the files have of it."""
    chosen = [n for n, case in enumerate(found.cases) if case.group == group]
    cases = [found.cases[n] for n in chosen]
    return Scored(cases, [scores[chosen] for scores in found.scores], listed, {"cases": listed - len(cases)})


def _opened(keys: Iterable[Key], store: ImageStore, unused: Unused) -> Iterator[tuple[Key, Image.Image]]:
    for name, box in keys:
        try:
            picture = _any_suffix(name, store)
        except ImageProblem as problem:
            unused.add(problem.reason, name)
            continue
        if box is None:
            yield (name, box), picture
            continue
        left, upper, right, lower = (round(side) for side in box)
        if left >= picture.width or upper >= picture.height or right <= 0 or lower <= 0:
            unused.add("box_outside_picture", f"{name} {box}")
            continue
        # As PIL crops and the benchmark does: what reaches beyond the picture is black.
        yield (name, box), picture.crop((left, upper, max(right, left + 1), max(lower, upper + 1)))


def _any_suffix(name: str, store: ImageStore) -> Image.Image:
    """The picture of that name; a name without a suffix (Winoground's) is looked for as .png and .jpg too."""
    suffixes = SUFFIXES if not Path(name).suffix else SUFFIXES[:1]
    for suffix in suffixes:
        try:
            return store.rgb(name + suffix)
        except ImageProblem as problem:
            if problem.reason != "missing_file" or suffix == suffixes[-1]:
                raise ImageProblem(problem.reason, name) from None
    raise AssertionError("unreachable")


def _store(root: Path) -> ImageStore:
    if not root.is_dir():
        raise DataError(f"there is no folder of pictures at {root} (--image-root)")
    return image_store(root, DataConfig(path=str(root)))


def _protocol(benchmark: str, path: Path, image_root: Path) -> dict[str, Any]:
    return {
        "benchmark": benchmark,
        "read_from": str(path),
        "image_root": str(image_root),
        "ties": TIE_RULE,
        "scores": SCORES,
    }


def _with(retrievers: Sequence[Named], results: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {named.label: {**named.facts(), "results": found} for named, found in zip(retrievers, results, strict=True)}
