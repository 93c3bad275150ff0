"""Images in plain WebDataset tar shards, read by byte range."""

from __future__ import annotations

import hashlib
import os
import posixpath
import shutil
import tarfile
import tempfile
from dataclasses import dataclass
from io import BytesIO
from types import TracebackType
from typing import IO

from repair_ray.data.files import filesystem, is_remote
from repair_ray.data.records import ImageRef

BLOCK = 512
_MAGIC = (
    (b"\xff\xd8\xff", "jpg"),
    (b"\x89PNG\r\n\x1a\n", "png"),
    (b"GIF8", "gif"),
    (b"BM", "bmp"),
    (b"II*\0", "tif"),
    (b"MM\0*", "tif"),
)


@dataclass(frozen=True)
class ShardMember:
    """Where a member's bytes lie. `shard` is relative to the writer's `relative_to`; `name` is its name in the tar."""

    shard: str
    offset: int
    length: int
    sha256: str
    name: str

    def ref(self) -> ImageRef:
        return ImageRef(self.shard, self.offset, self.length, self.sha256)


def image_extension(data: bytes) -> str:
    """The usual file extension for encoded image bytes, by content; "bin" when unknown."""
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "webp"
    if data[4:12] in (b"ftypavif", b"ftypavis"):
        return "avif"
    return next((extension for magic, extension in _MAGIC if data.startswith(magic)), "bin")


class ShardWriter:
    """Writes `folder/prefix-00000.tar`, ... each at most `max_bytes` unless one member alone is larger.

    A shard appears under its name only when it is complete (on reaching its size, or on close); until then its
    members cannot be read, so close the writer before recording them. The same members in the same order give the
    same bytes. Member names come from `key` (or the member's number), hashed, so no outside text gets into a tar.
    Parallel writers need different prefixes. A failed `with` block leaves no unfinished file. `folder` may be a URI:
    the shard is then built in a local temporary file and uploaded whole.
    """

    def __init__(self, folder: str, prefix: str, max_bytes: int, relative_to: str | None = None) -> None:
        if not prefix or not all(letter.isalnum() or letter in "-_." for letter in prefix) or prefix.startswith("."):
            raise ValueError(f"shard prefix {prefix!r}: use letters, digits, '-', '_' and '.' only")
        self._folder = folder.rstrip("/")
        self._prefix = prefix
        self._max_bytes = max_bytes
        self._base = _relative(self._folder, relative_to)
        self._members = 0
        self._shard = 0
        self._file: IO[bytes] | None = None
        self._tar: tarfile.TarFile | None = None

    def add(self, data: bytes, key: str | None = None) -> ShardMember:
        """Append one image. `key` (e.g. the image id) must be unique in the writer. Raises OSError (disk full)."""
        padded = BLOCK + (len(data) + BLOCK - 1) // BLOCK * BLOCK
        if self._file is not None and self._file.tell() + padded > self._max_bytes:
            self._finish()
        if self._tar is None:
            self._begin()
        assert self._tar is not None and self._file is not None
        stem = f"{self._members:08d}" if key is None else hashlib.sha256(key.encode("utf-8", "replace")).hexdigest()
        info = tarfile.TarInfo(f"{stem}.{image_extension(data)}")
        info.size = len(data)
        info.mode = 0o644
        offset = self._file.tell() + BLOCK
        self._tar.addfile(info, BytesIO(data))
        self._members += 1
        return ShardMember(
            self._base + self._shard_name(), offset, len(data), hashlib.sha256(data).hexdigest(), info.name
        )

    def close(self) -> None:
        if self._tar is not None:
            self._finish()

    def abort(self) -> None:
        """Drop the unfinished shard; finished ones stay."""
        if self._file is not None:
            self._file.close()
            os.unlink(self._file.name)
        self._tar = self._file = None

    def __enter__(self) -> ShardWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()

    def _shard_name(self) -> str:
        return f"{self._prefix}-{self._shard:05d}.tar"

    def _begin(self) -> None:
        where = None
        if not is_remote(self._folder):
            os.makedirs(self._folder, exist_ok=True)
            where = self._folder
        self._file = tempfile.NamedTemporaryFile(  # noqa: SIM115 - lives over many calls
            dir=where, prefix=f".{self._shard_name()}.", suffix=".tmp", delete=False
        )
        self._tar = tarfile.open(fileobj=self._file, mode="w", format=tarfile.USTAR_FORMAT)  # noqa: SIM115

    def _finish(self) -> None:
        assert self._tar is not None and self._file is not None
        try:
            self._tar.close()
            self._file.flush()
            os.fsync(self._file.fileno())
            self._publish(self._file.name)
        except BaseException:
            self.abort()
            raise
        self._file.close()
        self._tar = self._file = None
        self._shard += 1

    def _publish(self, temporary: str) -> None:
        target = f"{self._folder}/{self._shard_name()}"
        if not is_remote(self._folder):
            os.chmod(temporary, 0o644)  # temporary files are private, shards are for every reader
            os.replace(temporary, target)
            return
        where, inner = filesystem(target)
        where.create_dir(posixpath.dirname(inner), recursive=True)
        with open(temporary, "rb") as source, where.open_output_stream(inner) as sink:
            shutil.copyfileobj(source, sink, 2**22)
        os.unlink(temporary)


def _relative(folder: str, relative_to: str | None) -> str:
    """The prefix that turns a shard's file name into a URI relative to `relative_to`."""
    if relative_to is None:
        return ""
    root = relative_to.rstrip("/")
    if not is_remote(folder):
        folder, root = os.path.abspath(folder), os.path.abspath(root)
    if folder == root:
        return ""
    if not folder.startswith(root + "/"):
        raise ValueError(f"shard folder {folder} is not below {relative_to}")
    return folder[len(root) + 1 :] + "/"
