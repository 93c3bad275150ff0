"""What people said: one append-only JSON-lines file for each annotator, on the disk before an answer is sent.

The last line of an item wins, so that going back and choosing again needs no change of what was written. A line that
was cut by a crash is left out.
"""

from __future__ import annotations

import errno
import json
import os
import re
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from repair_ray.run import RunError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
SUFFIX = ".jsonl"


def check_annotator(name: str) -> str:
    """The name, which is that of a file. Raises `RunError` for one that is none."""
    if not _NAME.fullmatch(name):
        raise RunError(
            f"annotator {name!r}: take letters, digits, '_', '-' and '.', 64 at most, a letter or digit first"
        )
    return name


class Annotations:
    """The labels of one annotator.

    Held by one process at a time; other annotators' files are others' to write.
    """

    def __init__(self, folder: Path, annotator: str, allowed: Sequence[str]) -> None:
        """Raises `RunError` for a bad name, and while another process writes for this annotator."""
        self.annotator = check_annotator(annotator)
        self._allowed = tuple(allowed)
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / f"{annotator}{SUFFIX}"
        self._lock = FileLock(folder / f".{annotator}.lock", timeout=0)
        try:
            self._lock.acquire()
        except Timeout:
            raise RunError(
                f"somebody labels as {annotator} already; take another name, or stop the other one"
            ) from None
        self._found = read_annotations(self._path, self._allowed)
        self._writing = threading.Lock()
        self._file = self._path.open("ab", buffering=0)
        # After a line that a crash, or a full disk, has cut, the next begins on a line of its own.
        self._cut = self._path.stat().st_size > 0 and not _ends_with_newline(self._path)

    @property
    def labels(self) -> Mapping[str, str]:
        """The label of each item that has one."""
        return self._found

    def put(self, item: str, label: str) -> None:
        """Keep a label; it is on the disk when this returns.

        Raises:
            ValueError: an unknown label. OSError: it cannot be written; the item has the label that it had.
        """
        if label not in self._allowed:
            raise ValueError(f"unknown label {label!r}; allowed are {', '.join(self._allowed)}")
        line = {"item": item, "label": label, "at": round(time.time(), 3)}
        data = (json.dumps(line) + "\n").encode()
        with self._writing:
            if self._cut:
                data = b"\n" + data
            self._cut = True
            if self._file.write(data) != len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._path))
            os.fsync(self._file.fileno())
            self._cut = False
            self._found[item] = label

    def close(self) -> None:
        self._file.close()
        self._lock.release()

    def __enter__(self) -> Annotations:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Annotators:
    """Who labels in a folder: the named ones, or anybody, each file opened when it is first needed."""

    def __init__(self, folder: Path, allowed: Sequence[str], names: Sequence[str] = ()) -> None:
        """`names`: those who may label; anybody where there are none. Raises `RunError` as `Annotations`."""
        self._folder, self._allowed = folder, tuple(allowed)
        self._named = tuple(dict.fromkeys(check_annotator(name) for name in names))
        self._open: dict[str, Annotations] = {}
        self._opening = threading.Lock()
        try:
            for name in self._named:
                self.of(name)
        except RunError:
            self.close()
            raise

    @property
    def anybody(self) -> bool:
        """Whether others than the named ones may label."""
        return not self._named

    @property
    def names(self) -> list[str]:
        """Those who may label; where anybody may, those who have."""
        return list(self._named) or sorted({*self._open, *read_all(self._folder, self._allowed)})

    def of(self, name: str) -> Annotations:
        """The annotations of one; KeyError for somebody who may not label, `RunError` as `Annotations`."""
        if self._named and name not in self._named:
            raise KeyError(name)
        with self._opening:
            if name not in self._open:
                self._open[name] = Annotations(self._folder, name, self._allowed)
            return self._open[name]

    def others(self, name: str) -> dict[str, dict[str, str]]:
        """`{annotator: {item: label}}` of all the others, as it is on the disk."""
        return {other: own for other, own in read_all(self._folder, self._allowed).items() if other != name}

    def close(self) -> None:
        for own in self._open.values():
            own.close()

    def __enter__(self) -> Annotators:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read_annotations(path: Path, allowed: Sequence[str]) -> dict[str, str]:
    """The label of each item in a file of annotations; nothing where there is no file.

    Raises:
        RunError: a whole line that is no annotation, or an unknown label; names the line.
    """
    found: dict[str, str] = {}
    for number, line in _lines(path):
        try:
            row: dict[str, Any] = json.loads(line)
            item, label = str(row["item"]), str(row["label"])
        except (ValueError, KeyError, TypeError):
            if line.endswith(b"}\n"):
                raise RunError(f"{path}, line {number}: not a label of an item") from None
            continue  # cut by a crash
        if label not in allowed:
            raise RunError(f"{path}, line {number}: unknown label {label!r}; allowed are {', '.join(allowed)}")
        found[item] = label
    return found


def read_all(folder: Path, allowed: Sequence[str]) -> dict[str, dict[str, str]]:
    """`{annotator: {item: label}}` of all files in a folder; annotators without a label are left out."""
    found = {path.name.removesuffix(SUFFIX): read_annotations(path, allowed) for path in sorted(_files(folder))}
    return {name: labels for name, labels in found.items() if labels}


def put_all(folder: Path, labels: Mapping[str, Mapping[str, str]], allowed: Sequence[str]) -> int:
    """Keep the labels of several annotators that are new or other than what is kept; returns how many these were.

    Raises:
        RunError: as `Annotations`.
    """
    written = 0
    for annotator, own in labels.items():
        with Annotations(folder, annotator, allowed) as kept:
            for item, label in own.items():
                if kept.labels.get(item) != label:
                    kept.put(item, label)
                    written += 1
    return written


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in folder.glob(f"*{SUFFIX}") if _NAME.fullmatch(path.name.removesuffix(SUFFIX)))


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    try:
        with path.open("rb") as file:
            yield from enumerate(file, start=1)
    except FileNotFoundError:
        return


def _ends_with_newline(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"
