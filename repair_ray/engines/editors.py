"""Image editors: an encoded picture and an instruction in, an encoded picture out."""

from __future__ import annotations

from typing import Protocol


class EditError(Exception):
    """The editor cannot follow the instruction on this picture; the message says why."""


class ImageEditor(Protocol):
    """Edits one picture a call: the result depends on picture, instruction and seed alone, never on a batch."""

    name: str

    def edit(self, image: bytes, instruction: str, seed: int) -> bytes:
        """Return the edited picture, encoded. Raises `EditError` when the instruction cannot be followed."""
        ...
