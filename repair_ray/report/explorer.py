"""The search over the evaluation set: what a page needs to answer without a server, as JSON of bounded size."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from jinja2.utils import htmlsafe_json_dumps
from markupsafe import Markup

from repair_ray.report.answers import Answers, state
from repair_ray.report.pictures import DataRows, Pictures, Row
from repair_ray.report.results import count

# Bytes of the page: of ranks and captions, and of pictures.
TEXT_BYTES = 6 * 2**20
PICTURE_BYTES = 6 * 2**20
TOP = 3


def search_data(
    before: Answers,
    after: Answers,
    data: DataRows,
    pictures: Pictures,
    *,
    text_bytes: int = TEXT_BYTES,
    picture_bytes: int = PICTURE_BYTES,
) -> Row:
    """The pictures of the evaluation set with their captions, and what each found before and after.

    Pictures with an answer that has changed come first, then by id, so that what does not fit is what did not change.

    Returns:
        `json` (for a `<script type="application/json">`), `images` (how many are in it), `pictures` (how many of these
        are shown), `of` (how many there are), and `cut`: what is left out, in a sentence, or None.
    """
    images = data.images(before["i2t"].keys() | after["i2t"].keys())
    captions = {
        image: [row for row in rows if row["caption_id"] in before["t2i"] or row["caption_id"] in after["t2i"]]
        for image, rows in data.captions_of(images).items()
    }
    order = sorted(images, key=lambda image: (not _has_changed(image, captions[image], before, after), image))
    kept = _that_fit(order, captions, text_bytes)
    shown = _thumbnails((images[image] for image in kept), pictures, picture_bytes)
    places = {image: place for place, image in enumerate(kept)}
    texts = [row for image in kept for row in captions[image]]
    text_places = {row["caption_id"]: place for place, row in enumerate(texts)}
    content = {
        "images": [
            {
                "captions": [text_places[row["caption_id"]] for row in captions[image]],
                **_found(before["i2t"].get(image), after["i2t"].get(image), text_places),
            }
            for image in kept
        ],
        "captions": [
            {
                "text": row["text"],
                "image": places[row["image_id"]],
                **_found(before["t2i"].get(row["caption_id"]), after["t2i"].get(row["caption_id"]), places),
            }
            for row in texts
        ],
        "pictures": [*shown, *[None] * (len(kept) - len(shown))],
    }
    visible = sum(source is not None for source in shown)
    return {
        "json": _embedded(content),
        "images": len(kept),
        "pictures": visible,
        "of": len(order),
        "cut": _cut(len(order), len(kept), len(shown)),
    }


def _has_changed(image: str, captions: list[Row], before: Answers, after: Answers) -> bool:
    asked = [("i2t", image), *(("t2i", row["caption_id"]) for row in captions)]
    return any(
        state(_rank(before[direction].get(query)), _rank(after[direction].get(query))) in ("fixed", "broken")
        for direction, query in asked
    )


def _rank(row: Row | None) -> int | None:
    return row["rank"] if row else None


def _that_fit(order: list[str], captions: dict[str, list[Row]], limit: int) -> list[str]:
    """As many as fit, with their captions, their ranks, and the places of what they found."""
    frame = 160  # what a row takes beside its text, at most
    used = 0
    for number, image in enumerate(order):
        used += frame + sum(frame + len(_escaped(row["text"])) for row in captions[image])
        if used > limit:
            return order[:number]
    return order


def _escaped(text: str) -> bytes:
    return _embedded(text).encode("utf-8", "replace")


def _thumbnails(rows: Iterable[Row], pictures: Pictures, limit: int) -> list[str | None]:
    """A picture for each row, until the limit is reached; None for one that cannot be read."""
    made: list[str | None] = []
    used = 0
    for row in rows:
        source = pictures.small(row)
        used += len(source or "")
        if used > limit:
            break
        made.append(source)
    return made


def _found(old: Row | None, new: Row | None, places: dict[str, int]) -> dict[str, Any]:
    """Ranks and the items ranked first, before and after, by their place on the page; -1 for one that is not on it."""
    return {
        "rank": [_rank(old), _rank(new)],
        "top": [[places.get(item["item_id"], -1) for item in (row["top"] if row else [])[:TOP]] for row in (old, new)],
    }


def _embedded(content: Any) -> Markup:
    """JSON that cannot end the element which holds it, whatever the captions say."""
    return htmlsafe_json_dumps(content, dumps=json.dumps, separators=(",", ":"), ensure_ascii=False)


def _cut(of: int, kept: int, shown: int) -> str | None:
    parts = []
    if kept < of:
        parts.append(f"{count(kept)} of the {count(of)} pictures of the split are in this file, changed answers first")
    if shown < kept:
        parts.append(f"the first {count(shown)} of them are shown, the others are named by their captions")
    return f"To keep this file small, {'; '.join(parts)}." if parts else None
