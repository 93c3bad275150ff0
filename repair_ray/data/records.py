"""What a reader yields: records, and problems where a row is unusable. Plain values, no tables, no Ray."""

from __future__ import annotations

from dataclasses import dataclass, field

SPLIT_NAMES = {
    "train": "train",
    "training": "train",
    "restval": "train",  # COCO's Karpathy split: validation photos that everyone trains on
    "val": "validation",
    "valid": "validation",
    "validation": "validation",
    "dev": "validation",
    "test": "test",
    "testing": "test",
}


class DataError(ValueError):
    """The data set as a whole cannot be read; the message says what, where, and which setting to change."""


@dataclass(frozen=True)
class ImageRef:
    """An image that stays where it is: a whole file (offset and length None) or a byte range of one."""

    uri: str
    offset: int | None = None
    length: int | None = None
    sha256: str | None = None


@dataclass(frozen=True)
class InlineImage:
    """Encoded bytes that lay inside a table; the ingest puts them into tar shards."""

    data: bytes = field(repr=False)
    name: str = ""


@dataclass
class Record:
    """One image with its captions.

    `image_id` is unique within one call of `read`. `captions` holds at least one non-empty string. `split` is
    train, validation or test where the source's word is a known one, else the source's own word, else None.
    `group` is None unless a group column was named. `source` is "file:row", rows counted from 0.
    """

    image_id: str
    image: ImageRef | InlineImage
    captions: list[str]
    split: str | None
    group: str | None
    source: str


@dataclass(frozen=True)
class Problem:
    """A row that cannot be used: where it is, one word for why (counted in reports), and the particulars."""

    source: str
    reason: str
    detail: str


Item = Record | Problem


def canonical_split(name: object) -> str | None:
    """train, validation or test for the words in use ("restval" counts as train); other words stay; blank is None."""
    text = "" if name is None else str(name).strip()
    return SPLIT_NAMES.get(text.lower(), text) or None


def clean_captions(values: object) -> list[str]:
    """The non-empty captions among `values` (a string, a list, or None), with runs of white space collapsed."""
    if values is None:
        return []
    listed = values if isinstance(values, list | tuple) else [values]
    texts = (" ".join(value.split()) for value in listed if isinstance(value, str))
    return [text for text in texts if text]
