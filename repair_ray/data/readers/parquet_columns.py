"""Which column of a table holds what: of a Parquet schema, a CSV header, the keys of JSON objects."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase

import pyarrow as pa

from repair_ray.data.readers.base import ReadOptions
from repair_ray.data.records import DataError

_DATA_NAMES = ("image", "images", "img", "jpg", "png")
_PATH_NAMES = ("image_path", "image_file", "filepath", "file_path", "path", "filename", "file_name", "image_name")
IMAGE_NAMES = _DATA_NAMES + _PATH_NAMES
CAPTION_NAMES = ("captions", "caption", "text", "txt", "sentences", "sentence", "title", "comment")
ID_NAMES = ("image_id", "img_id", "imgid", "id")
_NUMBERED = re.compile(r"^captions?_?(\d+)$")


@dataclass(frozen=True)
class Columns:
    """Names of the columns to read; `captions` are one or several, in order."""

    image: str
    captions: tuple[str, ...]
    group: str | None
    split: str | None
    id: str | None

    def names(self) -> list[str]:
        others = [name for name in (self.group, self.split, self.id) if name]
        return list(dict.fromkeys([self.image, *self.captions, *others]))


def choose_columns(schema: pa.Schema, options: ReadOptions, file: str) -> Columns:
    """Take the named columns, and find the others by name and type.

    A group column is never guessed: a column called "group" is as often a category. Raises DataError that lists the
    columns found and the setting to change.
    """
    columns = Columns(
        image=_image_column(schema, options, file),
        captions=_caption_columns(schema, options, file),
        group=_named(schema, options.group_column, "group_column", file),
        split=_named(schema, options.split_column, "split_column", file),
        id=_named(schema, options.id_column, "id_column", file),
    )
    split, id_name = columns.split, columns.id
    if options.split_column is None and "split" in schema.names:
        split = "split"
    if options.id_column is None:
        id_name = next((name for name in ID_NAMES if name in schema.names and _is_scalar(schema, name)), None)
    return Columns(columns.image, columns.captions, columns.group, split, id_name)


def is_image_struct(kind: pa.DataType) -> bool:
    """struct<bytes, path>, as Hugging Face's Image feature is stored."""
    return bool(pa.types.is_struct(kind)) and any(field.name == "bytes" for field in kind)


def is_bytes(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def is_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return is_text(kind.value_type)
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def found_columns(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} ({field.type})" for field in schema)


def _image_column(schema: pa.Schema, options: ReadOptions, file: str) -> str:
    name = _named(schema, options.image_column, "image_column", file)
    if name is None:
        structs = [field.name for field in schema if is_image_struct(field.type)]
        usable = [n for n in IMAGE_NAMES if n in schema.names and _is_image(schema.field(n).type)]
        name = structs[0] if len(structs) == 1 else next(iter(usable), None)
    if name is None:
        raise DataError(f"{file}: no image column recognised; set data.image_column. Found: {found_columns(schema)}")
    if not _is_image(schema.field(name).type):
        raise DataError(
            f"{file}: data.image_column {name!r} is {schema.field(name).type}; it must be struct<bytes, path>, "
            f"binary, or a string path. Found: {found_columns(schema)}"
        )
    return name


def _caption_columns(schema: pa.Schema, options: ReadOptions, file: str) -> tuple[str, ...]:
    asked = options.caption_column
    if asked is None:
        numbered = _numbered(schema)
        names = next(((n,) for n in CAPTION_NAMES if n in schema.names and _is_caption(schema.field(n).type)), numbered)
    elif asked in schema.names:
        names = (asked,)
    else:
        names = tuple(n for n in schema.names if fnmatchcase(n, asked)) or tuple(
            n for n in _numbered(schema) if n.startswith(asked)
        )
    if not names:
        what = "no caption column recognised" if asked is None else f"data.caption_column {asked!r} matches no column"
        raise DataError(f"{file}: {what}; set data.caption_column. Found: {found_columns(schema)}")
    for name in names:
        if not _is_caption(schema.field(name).type):
            raise DataError(
                f"{file}: data.caption_column {name!r} is {schema.field(name).type}; it must be a string or a list "
                f"of strings. Found: {found_columns(schema)}"
            )
    return names


def _numbered(schema: pa.Schema) -> tuple[str, ...]:
    """caption_0 .. caption_n, in the order of their numbers (caption_10 after caption_9)."""
    found = [(int(match[1]), name) for name in schema.names if (match := _NUMBERED.match(name))]
    return tuple(name for _, name in sorted(found))


def _named(schema: pa.Schema, name: str | None, setting: str, file: str) -> str | None:
    if not name:
        return None
    if name not in schema.names:
        raise DataError(f"{file}: data.{setting} {name!r} is not a column. Found: {found_columns(schema)}")
    return name


def _is_image(kind: pa.DataType) -> bool:
    return is_image_struct(kind) or is_bytes(kind) or is_text(kind)


def _is_caption(kind: pa.DataType) -> bool:
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return is_text(kind.value_type)
    return is_text(kind)


def _is_scalar(schema: pa.Schema, name: str) -> bool:
    kind = schema.field(name).type
    return is_text(kind) or pa.types.is_integer(kind)
