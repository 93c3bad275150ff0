"""The members of a tar by their headers alone: where each lies, and what is wrong with the tar. Nothing is unpacked."""

from __future__ import annotations

import io
import tarfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Literal

from repair_ray.data.files import filesystem, is_remote
from repair_ray.data.records import DataError

BLOCK = 512
_GZIP = b"\x1f\x8b"
LOCAL_BUFFER = 2**13
# One request of an object store then brings a member's text with its header.
REMOTE_BUFFER = 2**17


class TarProblem(Exception):
    """What ends the reading of a tar. `reason` is truncated or damaged_tar; what came before it stands."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(reason, detail)
        self.reason = reason
        self.detail = detail


@dataclass(frozen=True)
class Member:
    """A member's name, and the byte range of its content. Only a `file` has its content there, in one piece."""

    name: str
    offset: int
    length: int
    kind: Literal["file", "link", "sparse"]


def is_tar(head: bytes) -> bool:
    """Whether a file that starts so is a tar: a header whose checksum is right, or the zeros that end an empty one."""
    block = head[:BLOCK]
    if len(block) < BLOCK:
        return False
    try:
        tarfile.TarInfo.frombuf(block, "utf-8", "replace")
    except tarfile.HeaderError:
        return not block.strip(b"\0")
    return True


def is_compressed_tar(head: bytes) -> bool:
    """Whether a gzip file that starts so holds a tar."""
    if not head.startswith(_GZIP):
        return False
    try:
        return is_tar(zlib.decompressobj(31).decompress(head, BLOCK))
    except zlib.error:
        return False


class TarHeaders:
    """An open tar, on disk or in an object store. Iterating reads headers and seeks over what lies between them."""

    def __init__(self, file: str) -> None:
        where, inner = filesystem(file)
        self._name = file
        try:
            opened = where.open_input_file(inner)
            self._size = opened.size()
            self._stream = io.BufferedReader(opened, REMOTE_BUFFER if is_remote(file) else LOCAL_BUFFER)
        except OSError as error:
            raise DataError(f"cannot read {file}: {error}") from None
        if self._stream.peek(2).startswith(_GZIP):
            raise DataError(
                f"{file} is compressed, so its pictures cannot be read by byte range: unpack it (gunzip) first"
            )

    def __enter__(self) -> TarHeaders:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._stream.close()

    def __iter__(self) -> Iterator[Member]:
        """Members in order, folders and devices left out. Raises TarProblem where the tar goes wrong."""
        try:
            yield from self._members()
        except tarfile.TarError as error:
            raise TarProblem("damaged_tar", f"{self._size} bytes: {error}") from None
        except OSError as error:
            raise DataError(f"cannot read {self._name}: {error}") from None
        except (ValueError, OverflowError, RecursionError) as error:  # tarfile on a header of nonsense
            raise TarProblem("damaged_tar", f"{self._size} bytes: {error}") from None

    def content(self, member: Member) -> bytes:
        """The bytes of a member."""
        try:
            self._stream.seek(member.offset)
            return self._stream.read(member.length)
        except OSError as error:
            raise DataError(f"cannot read {self._name}: {error}") from None

    def _members(self) -> Iterator[Member]:
        if self._size < BLOCK:
            raise TarProblem("truncated", f"{self._size} bytes, less than one header")
        tar = tarfile.open(fileobj=self._stream, mode="r:", encoding="utf-8", errors="replace")  # noqa: SIM115
        last = -1
        while (found := tar.next()) is not None:
            tar.members = []  # type: ignore[attr-defined]  # they would pile up
            if found.size < 0 or found.offset_data <= last:
                raise TarProblem("damaged_tar", f"the header of {found.name!r} points backwards")
            last = found.offset_data
            if found.isreg() and found.offset_data + found.size > self._size:
                missing = found.offset_data + found.size - self._size
                raise TarProblem("truncated", f"ends inside {found.name!r}, {missing} bytes short")
            kind = "sparse" if found.issparse() else "file" if found.isreg() else "link"
            if found.isreg() or found.islnk() or found.issym():
                yield Member(found.name, found.offset_data, found.size, kind)  # type: ignore[arg-type]
        # tarfile takes anything that is no header for the end.
        self._stream.seek(tar.offset)
        block = self._stream.read(BLOCK)
        if len(block) < BLOCK:
            raise TarProblem(
                "truncated", f"ends at byte {self._size} without the end mark: cut, or still being written"
            )
        if block.strip(b"\0"):
            raise TarProblem("damaged_tar", f"no header at byte {tar.offset}, where one should be")
