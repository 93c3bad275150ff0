"""Pairs as text files of paths and captions, with the pictures in `images/` beside them.

Paths are as seen from the export's folder: start the trainer there.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from repair_ray.export.pairs import Caption, HardPair, Picture
from repair_ray.export.pictures import PictureFolder, Read
from repair_ray.run import RunError

NEGCLIP = "negclip.tsv"
OPEN_CLIP = "pairs.tsv"
JSONL = "pairs.jsonl"


def write_negclip(pairs: list[HardPair], read: Read, folder: Path) -> dict[str, int]:
    """NegCLIP's TSV: `filepath`, `title`, and as Python lists `neg_caption` and `neg_image`.

    `neg_image` holds row numbers, from 0: its loader takes picture, caption and a negative caption from that row. So
    each pair is two rows, the right one and the wrong one, that name each other; what is repeated becomes one row with
    longer lists. A pair without `neg_caption` is left out.
    """
    pictures = PictureFolder(folder, read)
    place: dict[tuple[str, str], int] = {}
    negatives: list[tuple[list[str], list[int]]] = []

    def row(picture: Picture, caption: Caption) -> int:
        number = place.setdefault((pictures.path(picture), caption.text), len(place))
        if number == len(negatives):
            negatives.append(([], []))
        return number

    left_out = 0
    for pair in pairs:
        if pair.neg_caption is None:
            left_out += 1
            continue
        right, wrong = row(pair.image, pair.caption), row(pair.neg_image, pair.neg_caption)
        for one, other, text in ((right, wrong, pair.neg_caption.text), (wrong, right, pair.caption.text)):
            _once(negatives[one][0], text)
            _once(negatives[one][1], other)
    if not place:
        raise RunError("no pair has a caption of its wrong picture, which NegCLIP's format needs")
    _tsv(
        folder / NEGCLIP,
        ("filepath", "title", "neg_caption", "neg_image"),
        ((*key, repr(texts), repr(rows)) for key, (texts, rows) in zip(place, negatives, strict=True)),
    )
    return {"pairs": len(pairs) - left_out, "rows": len(place), "pictures": len(pictures)} | (
        {"without neg_caption, left out": left_out} if left_out else {}
    )


def write_csv(
    pairs: list[HardPair], read: Read, folder: Path, originals: Iterable[tuple[Picture, Caption]]
) -> dict[str, int]:
    """open_clip's own table, `filepath` and `title` with a tab between: the data's pairs, then the edited ones."""
    pictures = PictureFolder(folder, read)
    rows = [(pictures.path(picture), caption.text) for picture, caption in originals]
    edited = [(pictures.path(pair.image), pair.caption.text) for pair in pairs]
    _tsv(folder / OPEN_CLIP, ("filepath", "title"), [*rows, *edited])
    return {"pairs": len(edited), "rows": len(rows) + len(edited), "pictures": len(pictures)}


def write_jsonl(pairs: list[HardPair], read: Read, folder: Path) -> dict[str, int]:
    """One line a pair: `HardPair.record()`, with `image` and `neg_image` as paths."""
    pictures = PictureFolder(folder, read)
    paths = ({"image": pictures.path(p.image), "neg_image": pictures.path(p.neg_image)} for p in pairs)
    _jsonl(folder / JSONL, ({**pair.record(), **found} for pair, found in zip(pairs, paths, strict=True)))
    return {"pairs": len(pairs), "pictures": len(pictures)}


def write_triplets(pairs: list[HardPair], read: Read, folder: Path) -> dict[str, int]:
    """Triplets for sentence-transformers, with the columns `anchor`, `positive` and `negative` and no others.

    `i2t.jsonl`: a picture (its path), the edited caption, the wrong one. `t2i.jsonl`: a caption, the edited picture,
    the wrong one (paths). `text.jsonl`: texts alone, with a caption of the query's picture as the anchor (`i2t` edits).
    """
    pictures = PictureFolder(folder, read)
    rows: dict[str, list[dict[str, str]]] = {"i2t": [], "t2i": [], "text": []}
    for pair in pairs:
        if pair.direction == "t2i":
            rows["t2i"].append(_triplet(pair.caption.text, pictures.path(pair.image), pictures.path(pair.neg_image)))
            continue
        assert pair.neg_caption is not None  # of an i2t pair it is what was wrongly retrieved
        texts = pair.caption.text, pair.neg_caption.text
        rows["i2t"].append(_triplet(pictures.path(pair.image), *texts))
        if pair.caption.synthetic and pair.anchor:
            rows["text"].append(_triplet(pair.anchor, *texts))
    for name, found in rows.items():
        if found:
            _jsonl(folder / f"{name}.jsonl", found)
    return {"pairs": len(pairs), **{f"{name}.jsonl": len(found) for name, found in rows.items() if found}}


def _triplet(anchor: str, positive: str, negative: str) -> dict[str, str]:
    return {"anchor": anchor, "positive": positive, "negative": negative}


def _once(items: list[Any], item: Any) -> None:
    if item not in items:
        items.append(item)


def _tsv(path: Path, header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter="\t", lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)


def _jsonl(path: Path, rows: Iterable[dict[str, Any]] | Iterator[dict[str, Any]]) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
