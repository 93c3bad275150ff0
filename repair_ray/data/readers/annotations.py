"""What lies beside a picture under its name: captions as .txt, .caption or .json, and named fields of the .json."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from repair_ray.data.readers.base import ReadOptions
from repair_ray.data.records import DataError, Problem, canonical_split, clean_captions

# In the order of preference where a sample has several.
PICTURES = ("jpg", "jpeg", "png", "webp", "gif", "bmp", "tif", "tiff", "avif")
TEXTS = ("txt", "caption", "json")
MAX_TEXT = 2**20
_SETTINGS = ("caption_column", "group_column", "split_column", "id_column")


@dataclass(frozen=True)
class Annotation:
    """Captions (not empty) and what else a picture's neighbours say of it."""

    captions: list[str]
    split: str | None
    group: str | None
    image_id: str | None


class Annotations:
    """Reads what lies beside pictures, and knows at the end which settings named nothing.

    `data.caption_column` is a key of the .json, or the suffix of a text; `split_column`, `group_column` and
    `id_column` are keys of the .json ("split" by default). Without a caption column, the captions are the list
    "captions" of the .json, or the text, or "caption" or "text" of the .json: the first of these that has any.
    """

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._unused = {name for name in _SETTINGS if getattr(options, name)}
        self._keys: list[str] | None = None
        self._any = False

    def wanted(self, suffix: str) -> bool:
        """Whether a neighbour of this suffix is read at all."""
        return suffix in TEXTS or suffix == (self._options.caption_column or "").lower()

    def read(self, texts: Mapping[str, bytes], source: str, name: str, lines: bool) -> Annotation | Problem:
        """The annotation out of a picture's neighbours, by suffix. `lines`: each line of a text is a caption.

        Problems, at `source` and about the picture `name`: no_caption, not_utf8, bad_json.
        """
        self._any = True
        try:
            decoded = {suffix: data.decode("utf-8-sig") for suffix, data in texts.items()}
        except UnicodeDecodeError as error:
            return Problem(source, "not_utf8", f"a text of {name}: {error.reason} at byte {error.start}; save as UTF-8")
        try:
            document = json.loads(decoded["json"]) if "json" in decoded else None
        except (ValueError, RecursionError) as error:
            return Problem(source, "bad_json", f"the .json of {name}: {error}")
        fields = document if isinstance(document, dict) else {}
        if self._keys is None and fields:
            self._keys = sorted(fields)
        captions = self._captions(decoded, document, fields, lines)
        if not captions:
            there = ", ".join(f".{suffix}" for suffix in sorted(texts)) or "no .txt or .json"
            return Problem(source, "no_caption", f"{name} has no caption ({there} beside it)")
        split = None if self._options.split_column == "" else self._field(fields, "split_column", "split")
        return Annotation(
            captions, canonical_split(split), self._field(fields, "group_column"), self._field(fields, "id_column")
        )

    def check_used(self, path: str) -> None:
        """Raises DataError for a setting that named nothing in the whole data set."""
        if self._any and self._unused:
            named = ", ".join(f"data.{name}={getattr(self._options, name)!r}" for name in sorted(self._unused))
            there = f"keys found: {', '.join(self._keys)}" if self._keys else "there is no .json with keys"
            raise DataError(f"{path}: {named} names nothing beside its pictures; {there}")

    def _captions(self, texts: Mapping[str, str], document: Any, fields: Mapping[str, Any], lines: bool) -> list[str]:
        asked = self._options.caption_column
        if asked:
            found = texts.get(asked.lower()) if asked.lower() != "json" else None
            if found is not None or asked in fields:
                self._unused.discard("caption_column")
            return _clean(_texts(found, lines) if found is not None else fields.get(asked))
        listed = document if isinstance(document, list | str) else fields.get("captions")
        ways = [
            listed if isinstance(listed, list) else None,
            *(_texts(texts.get(suffix), lines) for suffix in TEXTS if suffix != "json"),
            listed,
            fields.get("caption"),
            fields.get("text"),
        ]
        return next((found for found in map(_clean, ways) if found), [])

    def _field(self, fields: Mapping[str, Any], setting: str, default: str = "") -> str | None:
        key = getattr(self._options, setting) or default
        if key in fields:
            self._unused.discard(setting)
        value = fields.get(key)
        return str(value) if isinstance(value, str | int) and value != "" else None


def _texts(text: str | None, lines: bool) -> list[str]:
    if text is None:
        return []
    # CLIP_benchmark writes a line break inside a caption as a backslash and an n.
    return [line.replace("\\n", " ") for line in text.splitlines()] if lines else [text]


def _clean(values: object) -> list[str]:
    # A .json may escape half of a surrogate pair, which no table can hold.
    return [text.encode("utf-8", "replace").decode() for text in clean_captions(values)]
