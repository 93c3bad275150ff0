"""Reading images back by (uri, offset, length), wherever they lie."""

from __future__ import annotations

import builtins
import hashlib
import os
import posixpath
import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from PIL import Image

from repair_ray.data.files import filesystem, is_remote
from repair_ray.data.images import ImageProblem, load_rgb
from repair_ray.data.records import ImageRef, InlineImage

OPEN_HANDLES = 16


class ImageStore:
    """Bytes and pixels of the images that a table refers to. Thread-safe; can be sent to other processes.

    A relative URI lies below `root` (a folder or URI), symbolic links included, and never outside. An absolute path
    or URI is one that a reader recorded for a file left in place; with `in_place` only those below one of these
    folders are opened. Every refusal and failure is an ImageProblem, so that a stage records it on its row.
    """

    def __init__(
        self,
        root: str,
        background: tuple[int, int, int] = (255, 255, 255),
        max_pixels: int = 64_000_000,
        max_bytes: int = 64 * 2**20,
        in_place: Sequence[str] | None = None,
    ) -> None:
        self.root = root if is_remote(root) else os.path.abspath(root)
        self.background = background
        self.max_pixels = max_pixels
        self.max_bytes = max_bytes
        self.in_place = None if in_place is None else tuple(_folder(place) for place in in_place)
        self._reset()

    def bytes(
        self, uri: str, offset: int | None = None, length: int | None = None, sha256: str | None = None
    ) -> builtins.bytes:
        """A byte range, or the whole file when `offset` is None; checked against `sha256` when given.

        Raises ImageProblem: path_escapes_root, missing_file, unreadable, too_large, truncated, changed.
        """
        location = self.resolve(uri)
        try:
            data = self._whole(location) if offset is None else self._range(location, offset, length)
        except FileNotFoundError:
            raise ImageProblem("missing_file", uri) from None
        except (OSError, pa.ArrowException) as error:
            raise ImageProblem("unreadable", f"{uri}: {error}") from None
        if sha256 is not None and hashlib.sha256(data).hexdigest() != sha256:
            raise ImageProblem("changed", f"{uri}: bytes differ from those recorded (sha256)")
        return data

    def rgb(
        self, uri: str, offset: int | None = None, length: int | None = None, sha256: str | None = None
    ) -> Image.Image:
        """The upright RGB image, as `decode` makes it."""
        return self.decode(self.bytes(uri, offset, length, sha256))

    def picture(self, image: ImageRef | InlineImage) -> Image.Image:
        """The upright RGB image that a reader's record names or holds."""
        if isinstance(image, InlineImage):
            return self.decode(image.data)
        return self.rgb(image.uri, image.offset, image.length, image.sha256)

    def decode(self, data: builtins.bytes) -> Image.Image:
        """`load_rgb` with this store's background and limits."""
        return load_rgb(data, background=self.background, max_pixels=self.max_pixels, max_bytes=self.max_bytes)

    def resolve(self, uri: str) -> str:
        """The absolute path or URI. Raises ImageProblem("path_escapes_root")."""
        if not uri or "\0" in uri or ".." in uri.replace("\\", "/").split("/"):
            raise ImageProblem("path_escapes_root", f"{uri!r} is empty or climbs with '..'")
        if is_remote(uri) or os.path.isabs(uri):
            if self.in_place is not None and not any(uri.startswith(place) for place in self.in_place):
                raise ImageProblem("path_escapes_root", f"{uri!r} is below none of the folders of in-place images")
            return uri
        if is_remote(self.root):
            return posixpath.join(self.root, uri)
        full = os.path.join(self.root, uri)
        if not os.path.realpath(full).startswith(os.path.realpath(self.root).rstrip("/") + "/"):
            raise ImageProblem("path_escapes_root", f"{uri!r} is a link that leaves {self.root}")
        return full

    def _whole(self, location: str) -> builtins.bytes:
        where, inner = filesystem(location)
        with where.open_input_file(inner) as file:
            self._check_size(location, file.size())
            return file.read()  # type: ignore[no-any-return]

    def _range(self, location: str, offset: int, length: int | None) -> builtins.bytes:
        if length is None or length < 0 or offset < 0:
            raise ImageProblem("unreadable", f"{location}: range {offset}+{length} is not a byte range")
        self._check_size(location, length)
        data: builtins.bytes = self._handle(location).read_at(length, offset)
        if len(data) != length:
            raise ImageProblem("truncated", f"{location}: {len(data)} of {length} bytes at {offset}")
        return data

    def _check_size(self, location: str, size: int) -> None:
        if size > self.max_bytes:
            raise ImageProblem("too_large", f"{location}: {size} bytes, the limit is {self.max_bytes}")

    def _handle(self, location: str) -> Any:
        """An open file from the small cache. An evicted one closes itself when its last reader lets go of it."""
        with self._lock:
            handle = self._handles.pop(location, None)
            if handle is None:
                where, inner = filesystem(location)
                handle = where.open_input_file(inner)
            self._handles[location] = handle
            if len(self._handles) > OPEN_HANDLES:
                self._handles.popitem(last=False)
            return handle

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._handles: OrderedDict[str, pa.NativeFile] = OrderedDict()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("_lock", "_handles")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._reset()


def _folder(place: str) -> str:
    return (place if is_remote(place) else os.path.abspath(place)).rstrip("/") + "/"
