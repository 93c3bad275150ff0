"""The files of tests of composition: SugarCrepe, ARO and Winoground. Cases only; pictures are opened elsewhere."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from repair_ray.data.records import DataError

SUGAR_CREPE = ("add_att", "add_obj", "replace_att", "replace_obj", "replace_rel", "swap_att", "swap_obj")
BOX = ("bbox_x", "bbox_y", "bbox_w", "bbox_h")
Box = tuple[float, float, float, float]


@dataclass(frozen=True)
class Case:
    """One question: pictures by name, texts of which the first is right of the first picture.

    `box` is the part of the picture that counts: left, upper, right, lower. `group` is what accuracy is averaged over.
    """

    images: tuple[str, ...]
    texts: tuple[str, ...]
    group: str = ""
    box: Box | None = None


def read_sugarcrepe(path: Path) -> dict[str, list[Case]]:
    """The cases of each sub-set: of a folder that holds some of the seven files, or of one file.

    A file is an object of `{filename, caption, negative_caption}`; its keys are texts, and may leave numbers out.

    Raises:
        DataError: no such file, or a broken entry; names file and key.
    """
    files = [path] if path.is_file() else [path / f"{name}.json" for name in SUGAR_CREPE]
    there = [file for file in files if file.is_file()]
    if not there:
        raise DataError(f"{path} holds none of SugarCrepe's files: {', '.join(f'{name}.json' for name in SUGAR_CREPE)}")
    return {file.stem: _sugarcrepe(file) for file in there}


def _sugarcrepe(file: Path) -> list[Case]:
    tree = _json(file)
    if not isinstance(tree, dict):
        raise DataError(f"{file} must hold an object of cases, not {type(tree).__name__}")
    cases = []
    for key, entry in tree.items():
        name, right, wrong = (
            _text(entry, field, file, f"key {key!r}") for field in ("filename", "caption", "negative_caption")
        )
        cases.append(Case((name,), (right, wrong), file.stem))
    return cases


def read_aro(path: Path) -> tuple[str, list[Case]]:
    """The kind of an ARO file (`relation`, `attribution` or `order`) and its cases.

    Relations and attributes: a list of `{image_path, true_caption, false_caption, bbox_x, bbox_y, bbox_w, bbox_h}`
    with `relation_name` or `attributes` (two). Order: a list of `{image or image_path, caption_options}`, the true
    caption first, as the benchmark's own code makes them.

    Raises:
        DataError: unreadable, of none of these forms, or a broken entry; names the entry.
    """
    tree = _json(path)
    if not isinstance(tree, list) or not tree or not isinstance(tree[0], dict):
        raise DataError(f"{path} must hold a list of cases, not {type(tree).__name__}")
    first = tree[0]
    if "caption_options" in first:
        return "order", [_order(entry, path, f"entry {n}") for n, entry in enumerate(tree)]
    for field, kind in (("relation_name", "relation"), ("attributes", "attribution")):
        if field in first:
            return kind, [_boxed(entry, field, path, f"entry {n}") for n, entry in enumerate(tree)]
    raise DataError(
        f"{path}: entry 0 has neither relation_name nor attributes nor caption_options (found: {', '.join(first)})"
    )


def _order(entry: Any, path: Path, where: str) -> Case:
    options = entry.get("caption_options") if isinstance(entry, dict) else None
    if not isinstance(options, list) or len(options) < 2 or not all(isinstance(text, str) for text in options):
        raise DataError(f"{path}, {where}: caption_options is no list of at least two texts")
    return Case((_text(entry, "image" if "image" in entry else "image_path", path, where),), tuple(options))


def _boxed(entry: Any, field: str, path: Path, where: str) -> Case:
    name, right, wrong = (_text(entry, field, path, where) for field in ("image_path", "true_caption", "false_caption"))
    try:
        x, y, width, height = (float(entry[side]) for side in BOX)
    except (KeyError, TypeError, ValueError):
        raise DataError(f"{path}, {where}: {', '.join(BOX)} are not four numbers") from None
    if not (width > 0 and height > 0):
        raise DataError(f"{path}, {where}: the box is {width:g} by {height:g} pixels")
    found = entry.get(field)
    if field == "attributes":
        if not isinstance(found, list) or len(found) != 2:
            raise DataError(f"{path}, {where}: attributes is no list of two")
        found = "_".join(map(str, found))
    return Case((name,), (right, wrong), str(found), (x, y, x + width, y + height))


def read_winoground(path: Path) -> list[Case]:
    """The cases of `examples.jsonl`: image_0, image_1, caption_0, caption_1 and collapsed_tag, one object a line.

    Raises:
        DataError: unreadable, no case, or a broken line; names it.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot read {path}: {error}") from None
    cases = []
    for number, line in enumerate(lines, start=1):
        if line.strip():
            try:
                entry = json.loads(line)
            except ValueError as error:
                raise DataError(f"{path}, line {number} is not JSON: {error}") from None
            where = f"line {number}"
            images = (_text(entry, "image_0", path, where), _text(entry, "image_1", path, where))
            texts = (_text(entry, "caption_0", path, where), _text(entry, "caption_1", path, where))
            cases.append(Case(images, texts, str(entry.get("collapsed_tag") or "")))
    if not cases:
        raise DataError(f"{path} holds no case")
    return cases


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError) as error:
        raise DataError(f"cannot read {path} as JSON: {error}") from None


def _text(entry: Any, field: str, path: Path, where: str) -> str:
    value = entry.get(field) if isinstance(entry, dict) else None
    if not isinstance(value, str) or not value.strip():
        raise DataError(f"{path}, {where}: {field} is {value!r}, a text is needed")
    return value
