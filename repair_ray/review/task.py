"""What people are shown and asked on the review page: a task, which a room of the program makes of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from PIL import Image


@dataclass(frozen=True)
class Shown:
    """One item as people see it: a text, and how many pictures there are beside it."""

    text: str
    pictures: int = 1


@dataclass(frozen=True)
class Key:
    """A key that gives an item a label, and what the page calls it."""

    key: str
    label: str
    name: str


class ReviewTask(Protocol):
    """Items to label, in the order in which everybody sees them. Nothing that a machine said of them is shown."""

    @property
    def question(self) -> str:
        """What is asked of each item."""
        ...

    @property
    def keys(self) -> Sequence[Key]:
        """The labels that may be given."""
        ...

    @property
    def items(self) -> Sequence[str]:
        """Ids, in order."""
        ...

    def shown(self, item: str) -> Shown:
        """An item, by its id."""
        ...

    def picture(self, item: str, number: int) -> Image.Image:
        """One of an item's pictures, upright RGB.

        Raises:
            ImageProblem: it cannot be read.
        """
        ...
