"""Where bytes live: local paths, and any URI that pyarrow.fs or fsspec knows."""

from __future__ import annotations

import glob
import io
import os
import posixpath
import re
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from itertools import takewhile

from pyarrow import fs

from repair_ray.data.records import DataError

_SCHEME = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]+)://")  # two letters at least: "C:/" is no scheme
_BRACES = re.compile(r"\{([^{}]*)\}")
_NO_UTF8 = "{} holds a file whose name is not UTF-8: rename it (convmv does it for a whole folder)"
_MAGIC = re.compile(r"[*?\[]")
_HIDDEN = re.compile(r"(?:^|/)(?:\.|_(?![^/]*\.(?:jpe?g|png|webp|gif|bmp|tiff?|avif)$))", re.IGNORECASE)


def is_remote(path: str) -> bool:
    return _SCHEME.match(path) is not None


def is_pattern(path: str) -> bool:
    """Whether a path is a glob or has {braces}, and so names files rather than a folder."""
    return (bool(_MAGIC.search(path)) or _BRACES.search(path) is not None) and _existing(path) is None


def filesystem(path: str) -> tuple[fs.FileSystem, str]:
    """The file system of a path or URI, and the path within it. Raises DataError for a scheme nobody knows."""
    scheme = _SCHEME.match(path)
    if scheme is None:
        return fs.LocalFileSystem(), os.path.abspath(path)
    if scheme[1] == "file":
        return fs.LocalFileSystem(), os.path.abspath(path[len("file://") :])
    if scheme[1] in ("s3", "gs", "gcs", "hdfs", "abfs", "abfss"):
        found, inner = fs.FileSystem.from_uri(path)
        return found, inner
    try:
        import fsspec

        other = fsspec.filesystem(scheme[1])
        return fs.PyFileSystem(fs.FSSpecHandler(other)), other._strip_protocol(path)
    except (ImportError, ValueError) as error:
        raise DataError(f"cannot open {path}: {error}; use a local path, s3://, gs:// or an fsspec scheme") from None


def expand(path: str) -> list[str]:
    """The files that `path` names, sorted: a file, a folder (all below it), a glob, or {a,b} / {000..012} braces.

    Hidden files and those that start with "_" (but for pictures: cameras name them so) are left out of folders, so a
    folder may give []. Raises DataError when
    a name matches nothing.
    """
    exact = _existing(path)
    if exact is not None:
        return exact
    found: set[str] = set()
    for pattern in _expand_braces(path):
        matches = _existing(pattern)
        if matches is None:
            matches = _glob(pattern) if _MAGIC.search(pattern) else []
        if not matches:
            raise DataError(f"no such file or folder: {pattern}" + ("" if pattern == path else f" (from {path})"))
        found.update(matches)
    return sorted(found)


def read_head(path: str, size: int = 65536) -> bytes:
    """The first bytes of a file, for telling what it is."""
    where, inner = filesystem(path)
    try:
        with where.open_input_file(inner) as file:
            return bytes(file.read(size))
    except OSError as error:
        raise DataError(f"cannot read {path}: {error}") from None


def read_tail(path: str, size: int = 65536) -> bytes:
    """The last bytes of a file, for layouts that tell at their end what they are."""
    where, inner = filesystem(path)
    try:
        with where.open_input_file(inner) as file:
            length = file.size()
            return bytes(file.read_at(min(size, length), max(0, length - size)))
    except OSError as error:
        raise DataError(f"cannot read {path}: {error}") from None


@contextmanager
def open_text(path: str) -> Iterator[io.TextIOWrapper]:
    """A file as UTF-8 text, without its byte order mark, line ends as they are.

    Raises DataError when it cannot be read, and when the bytes read inside the block are not UTF-8.
    """
    where, inner = filesystem(path)
    try:
        with where.open_input_stream(inner, buffer_size=2**20) as stream:
            yield io.TextIOWrapper(stream, encoding="utf-8-sig", newline="")
    except UnicodeDecodeError as error:
        bad = error.object[error.start : error.end]
        raise DataError(f"{path} is not UTF-8 text ({bad!r}: {error.reason}); convert it") from None
    except OSError as error:
        raise DataError(f"cannot read {path}: {error}") from None


def root_of(path: str, files: list[str]) -> str:
    """What the files' names start with: the folder `path`, or else the deepest that they share; "" or with a slash."""
    folder = path.rstrip("/") + "/"
    if all(file.startswith(folder) for file in files):
        return folder
    levels = zip(*(file.split("/")[:-1] for file in files), strict=False)
    shared = takewhile(lambda parts: len(set(parts)) == 1, levels)
    return "".join(parts[0] + "/" for parts in shared)


class FolderListing:
    """Which files and folders exist, with one listing a folder instead of one look-up a file."""

    def __init__(self) -> None:
        self._names: dict[str, tuple[set[str], set[str]]] = {}

    def has(self, path: str) -> bool:
        folder, _, name = path.rpartition("/")
        return name in self._list(folder or "/")[0]

    def files(self, folder: str) -> list[str]:
        """Paths of the files directly in a folder, sorted; [] where there is no such folder."""
        return [f"{folder.rstrip('/')}/{name}" for name in sorted(self._list(folder)[0])]

    def folders(self, folder: str) -> list[str]:
        """Paths of the folders directly in a folder, sorted, without hidden ones."""
        names = sorted(name for name in self._list(folder)[1] if not name.startswith((".", "_")))
        return [f"{folder.rstrip('/')}/{name}" for name in names]

    def _list(self, folder: str) -> tuple[set[str], set[str]]:
        if folder not in self._names:
            where, inner = filesystem(folder)
            infos = where.get_file_info(fs.FileSelector(inner, allow_not_found=True))
            files = {info.base_name for info in infos if info.type == fs.FileType.File}
            folders = {info.base_name for info in infos if info.type == fs.FileType.Directory}
            self._names[folder] = files, folders
        return self._names[folder]


def under_root(root: str, name: str) -> str:
    """`name` joined to `root`. An absolute name must lie below the root. Raises ValueError when it would leave it."""
    if is_remote(name):
        clean, base = name, root.rstrip("/")
        if ".." in clean.split("/"):
            raise ValueError(f"{name!r} climbs with '..'")
    elif is_remote(root):
        scheme, _, inner = root.partition("://")
        base = root.rstrip("/")
        clean = f"{scheme}://" + posixpath.normpath(posixpath.join(inner, name))
    else:
        base = os.path.abspath(root)
        clean = os.path.normpath(os.path.join(base, name))
    if "\0" in name or not clean.startswith(base.rstrip("/") + "/"):
        raise ValueError(f"{name!r} lies outside {root}")
    return clean


def _existing(path: str) -> list[str] | None:
    """The file itself, the files below a folder, or None when neither is there."""
    where, inner = filesystem(path)
    try:
        info = where.get_file_info(inner)
        if info.type == fs.FileType.File:
            return [path]
        if info.type != fs.FileType.Directory:
            return None
        below = where.get_file_info(fs.FileSelector(inner, recursive=True))
        found = [entry.path for entry in below if entry.type == fs.FileType.File]
    except UnicodeError:
        raise DataError(_NO_UTF8.format(path)) from None
    except Exception as error:  # a client of an object store may raise anything
        if not is_remote(path):
            raise
        raise DataError(f"cannot look into {path}: {type(error).__name__}: {error}") from None
    base = inner.rstrip("/")
    names = [full[len(base) + 1 :] for full in found]
    return sorted(f"{path.rstrip('/')}/{name}" for name in names if not _HIDDEN.search(name))


def _glob(pattern: str) -> list[str]:
    if not is_remote(pattern):
        found = [name for name in glob.glob(pattern, recursive=True) if os.path.isfile(name)]
        if any("\udc80" <= letter <= "\udcff" for name in found for letter in name):
            raise DataError(_NO_UTF8.format(pattern))
        return found
    fixed = pattern[: _first_magic(pattern)].rpartition("/")[0]
    depth = pattern.count("/")
    below = _existing(fixed) or []
    return [n for n in below if fnmatchcase(n, pattern) and ("**" in pattern or n.count("/") == depth)]


def _first_magic(pattern: str) -> int:
    found = _MAGIC.search(pattern)
    return found.start() if found else len(pattern)


def _expand_braces(pattern: str) -> list[str]:
    found = _BRACES.search(pattern)
    if found is None:
        return [pattern]
    numbers = re.fullmatch(r"(\d+)\.\.(\d+)", found[1])
    if numbers:
        width = len(numbers[1])
        options = [f"{i:0{width}d}" for i in range(int(numbers[1]), int(numbers[2]) + 1)]
    else:
        options = found[1].split(",")
    heads = [pattern[: found.start()] + option + pattern[found.end() :] for option in options]
    return [full for head in heads for full in _expand_braces(head)]
