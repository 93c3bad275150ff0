"""JSON that need not fit in memory: what its beginning holds, and its entries one by one."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import ijson

from repair_ray.data.files import filesystem
from repair_ray.data.records import DataError

_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class Shape:
    """What the beginning of a JSON file tells.

    `kind` is "list", "object", "lines" (JSONL) or "" (not JSON). `keys` are paths to the keys of objects, with "*" for
    a place in a list: ("images", "*", "filename").
    """

    kind: str
    keys: frozenset[tuple[str, ...]] = frozenset()

    def top(self) -> list[str]:
        """The keys of the file itself; of its first entries where it is a list or lines."""
        depth = 2 if self.kind == "list" else 1
        return sorted({path[-1] for path in self.keys if len(path) == depth})

    def of_entries(self, container: str | None = None) -> set[str]:
        """Keys of the objects in a container: a list, or an object whose values are objects. None: the whole file."""
        if self.kind == "lines":
            return {path[0] for path in self.keys if len(path) == 1 and container is None}
        depth = 2 if container is None else 3
        return {path[-1] for path in self.keys if len(path) == depth and container in (None, path[0])}


def shape(head: bytes) -> Shape:
    """What the first bytes of a file tell of it; they may end anywhere."""
    text = head.removeprefix(_BOM).lstrip()
    if text[:1] == b"[":
        return Shape("list", _keys(text))
    if text[:1] != b"{":
        return Shape("")
    return Shape("lines" if _is_line(text) else "object", _keys(text))


def entries(file: str, container: str | None = None) -> Iterator[Any]:
    """The entries of a list, or the values of an object, one at a time; none where the container is absent.

    Args:
        container: the top-level key that holds them; None for the file itself.

    Raises DataError: no valid JSON, which shows only when the place is reached.
    """
    found = False
    for entry in _parse(file, "items", f"{container}.item" if container else "item"):
        found = True
        yield entry
    if not found:
        for _, entry in _parse(file, "kvitems", container or ""):
            yield entry


def lines(file: str) -> Iterator[Any]:
    """The value of each line that is not blank; for a line that is no JSON, the ValueError that says why."""
    where, inner = filesystem(file)
    try:
        with where.open_input_stream(inner, buffer_size=2**20) as stream:
            for number, line in enumerate(_split(stream)):
                line = line.removeprefix(_BOM) if number == 0 else line
                if line.strip():
                    try:
                        yield json.loads(line)
                    except (ValueError, RecursionError) as error:
                        yield ValueError(f"not JSON: {error}")
    except OSError as error:
        raise DataError(f"cannot read {file}: {error}") from None


def _parse(file: str, how: str, prefix: str) -> Iterator[Any]:
    where, inner = filesystem(file)
    try:
        with where.open_input_stream(inner, buffer_size=2**20) as stream:
            yield from getattr(ijson, how)(_WithoutBom(stream), prefix)
    except (OSError, ijson.JSONError) as error:
        raise DataError(f"{file} is not readable JSON: {' '.join(str(error).split())}") from None


class _WithoutBom:
    """A byte stream as ijson reads it; ijson takes a byte order mark for a fault."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._first = stream.read(len(_BOM)).removeprefix(_BOM)

    def read(self, size: int) -> bytes:
        if size == 0:
            return b""
        data, self._first = self._first, b""
        return data + bytes(self._stream.read(size))


def _split(stream: Any) -> Iterator[bytes]:
    """Lines of a byte stream. Only a line feed ends one: in JSON, text may hold every other separator."""
    rest = b""
    while block := bytes(stream.read(2**20)):
        *whole, rest = (rest + block).split(b"\n")
        yield from whole
    yield rest


def _is_line(text: bytes) -> bool:
    """Whether the first line is an object by itself; a file of one line is a whole when it holds other objects."""
    first, _, more = text.partition(b"\n")
    try:
        value = json.loads(first)
    except (ValueError, RecursionError):
        return False
    parts = [part for held in value.values() for part in (held if isinstance(held, list) else [held])]
    return bool(more.strip()) or not any(isinstance(part, dict) for part in parts)


def _keys(text: bytes) -> frozenset[tuple[str, ...]]:
    found: set[tuple[str, ...]] = set()
    path: list[str] = []  # one part for each container that is open: "*" in a list, the key in an object
    try:
        for event, value in ijson.basic_parse(io.BytesIO(text), multiple_values=True):
            if event == "map_key":
                path[-1] = value
                if len(path) <= 3:
                    found.add(tuple(path))
            elif event == "start_map":
                path.append("")
            elif event == "start_array":
                path.append("*")
            elif event in ("end_map", "end_array"):
                path.pop()
    except ijson.JSONError:
        pass  # the head ends where it ends
    return frozenset(found)
