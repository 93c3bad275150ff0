"""The memory of this process and of all that it starts, as Linux tells it, looked at again and again."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Self

KIB = 1024


class Sampler(ABC):
    """Calls `look` every `every` seconds for as long as its context is open."""

    every = 0.5

    def __init__(self) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    @abstractmethod
    def look(self) -> None:
        """Take one sample."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(self.every):
            self.look()


def anonymous(root: int) -> dict[int, int]:
    """Anonymous memory in bytes of a process and of each below it, by process id."""
    return dict(_sizes(root, "status", "RssAnon"))


def proportional(root: int) -> int:
    """The proportional set size in bytes of a process and all below it: what they share counts once."""
    return sum(size for _, size in _sizes(root, "smaps_rollup", "Pss"))


def _sizes(root: int, file: str, key: str) -> Iterator[tuple[int, int]]:
    for process in _tree(root):
        try:
            lines = Path(f"/proc/{process}/{file}").read_text().splitlines()
        except OSError:
            continue  # it has ended
        for line in lines:
            name, _, value = line.partition(":")
            if name == key:
                yield process, KIB * int(value.split()[0])


def _tree(root: int) -> list[int]:
    """A process and all below it."""
    children = defaultdict(list)
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                facts = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            children[int(facts[1])].append(int(entry.name))
    found = [root]
    for process in found:
        found += children[process]
    return found
