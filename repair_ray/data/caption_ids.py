"""The ids that data sets give to pictures and captions, which a ground-truth file of another author speaks of."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from repair_ray.data.records import DataError, clean_captions


@dataclass
class PictureIds:
    """The id of a picture, and its captions' texts with their ids."""

    image: str | None = None
    captions: list[tuple[str, str]] = field(default_factory=list)


def read_caption_ids(path: Path) -> dict[str, PictureIds]:
    """Ids by file name, of a Karpathy JSON (`cocoid`, `sentid`) or of COCO's captions JSON (`images`, `annotations`).

    Raises:
        DataError: unreadable, or of neither layout.
    """
    try:
        tree = json.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError) as error:
        raise DataError(f"cannot read {path} as JSON: {error}") from None
    images = tree.get("images") if isinstance(tree, dict) else None
    if not isinstance(images, list) or not all(isinstance(entry, dict) for entry in images):
        raise DataError(f"{path} has no list \"images\": a Karpathy JSON or COCO's captions JSON names captions' ids")
    try:
        return _coco(images, tree["annotations"]) if "annotations" in tree else _karpathy(images)
    except (KeyError, TypeError) as error:
        raise DataError(f"{path}: an entry lacks {error}") from None


def _karpathy(images: list[dict[str, Any]]) -> dict[str, PictureIds]:
    found = {}
    for entry in images:
        ids = PictureIds(None if entry.get("cocoid") is None else str(entry["cocoid"]))
        for sentence in entry["sentences"]:
            ids.captions += [(str(sentence["sentid"]), text) for text in clean_captions(sentence.get("raw"))]
        found[str(entry["filename"])] = ids
    return found


def _coco(images: list[dict[str, Any]], annotations: list[dict[str, Any]]) -> dict[str, PictureIds]:
    of_image: dict[Any, list[tuple[str, str]]] = defaultdict(list)
    for note in annotations:
        of_image[note["image_id"]] += [(str(note["id"]), text) for text in clean_captions(note["caption"])]
    return {entry["file_name"]: PictureIds(str(entry["id"]), of_image[entry["id"]]) for entry in images}
