"""Image editors: an encoded picture and an instruction in, an encoded picture out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from PIL import Image

# Encoded bytes to upright RGB pixels, on the background and within the limits of a run; raises ImageProblem.
Read = Callable[[bytes], Image.Image]


class EditError(Exception):
    """The editor cannot follow the instruction on this picture; the message says why."""


class ImageEditor(Protocol):
    """Edits one picture a call: the result depends on picture, instruction and seed alone, never on a batch.

    One of another package is made as `Editor(settings, read=read, device=device)`, once an actor: `read` is a `Read`,
    and `device` is `cuda` where `edit.pool.num_gpus` gives it a share of one, else `cpu`.
    """

    def edit(self, image: bytes, instruction: str, seed: int) -> bytes:
        """Return the edited picture, encoded. Raises `EditError` when the instruction cannot be followed."""
        ...
