"""The checkpoints of a training run while it goes on: on this disk or in an object store, found and checked here.

Ray Train's index of checkpoints lags behind what workers have uploaded, by the seconds between two polls, and it takes
what is listed for whole. So each checkpoint carries a seal, written last: its step, and the size and hash of each file.
A run goes on from the newest one that is as its seal says, whichever start of the run has left it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import posixpath
import re
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyarrow import fs

from repair_ray.data.files import filesystem
from repair_ray.data.records import DataError
from repair_ray.run import RunError, write_json

SEAL = "seal.json"
_START = re.compile(r"start-(\d+)")
KEPT = 2  # the newest, and one to fall back to
# What a client of an object store raises.
_ERRORS = (OSError, pa.ArrowException, DataError)


@dataclass(frozen=True)
class Checkpoint:
    """One checkpoint by its seal: its folder below the place of the run, its step, and of each file size and hash."""

    folder: str
    step: int
    files: dict[str, tuple[int, str]]


def seal(folder: Path, step: int) -> None:
    """Write down what is in a folder: the last step before it is uploaded."""
    files = {path.name: [path.stat().st_size, _hash(path)] for path in sorted(folder.iterdir())}
    write_json(folder / SEAL, {"step": step, "files": files})


@dataclass(frozen=True)
class Checkpoints:
    """The place of one run's checkpoints: `root`, a folder or URI, and `inside`, a path below it.

    Each start of the run has a folder of its own there, and each checkpoint one below that.
    """

    root: str
    inside: str = ""

    @property
    def where(self) -> tuple[fs.FileSystem, str]:
        """The file system, and the path within it."""
        system, path = filesystem(self.root)
        return system, posixpath.join(path, self.inside) if self.inside else path

    def sealed(self) -> list[Checkpoint]:
        """All checkpoints that have a seal, the newest first; none of them is checked yet."""
        system, root = self.where
        seals = [info.path for info in self._list(recursive=True) if info.base_name == SEAL]
        found = [_read_seal(system, path, root) for path in seals]
        return sorted((one for one in found if one), key=lambda one: (one.step, one.folder), reverse=True)

    @contextlib.contextmanager
    def newest(self) -> Iterator[tuple[Checkpoint, Path] | None]:
        """The newest checkpoint that is whole, in a local folder to read from; None where there is none.

        Damaged ones are passed over.
        """
        for checkpoint in self.sealed():
            with self.opened(checkpoint) as folder:
                if folder is not None:
                    yield checkpoint, folder
                    return
        yield None

    @contextlib.contextmanager
    def opened(self, checkpoint: Checkpoint) -> Iterator[Path | None]:
        """A checkpoint in a local folder to read from; None where it is not what its seal says."""
        system, root = self.where
        source = posixpath.join(root, checkpoint.folder)
        if isinstance(system, fs.LocalFileSystem):
            yield Path(source) if _whole(Path(source), checkpoint) else None
            return
        with tempfile.TemporaryDirectory() as local:
            try:
                fs.copy_files(source, local, source_filesystem=system)
            except FileNotFoundError:
                yield None
                return
            yield Path(local) if _whole(Path(local), checkpoint) else None

    def begin(self) -> str:
        """Make room for a new start, and give it a name; of what earlier ones left, the newest checkpoints stay.

        Raises:
            RunError: the place cannot be read or written.
        """
        try:
            system, root = self.where
            starts = sorted(info.base_name for info in self._list() if info.type == fs.FileType.Directory)
            kept = {checkpoint.folder for checkpoint in self.sealed()[:KEPT]}
            for start in starts:
                below = self._list(start)
                folders = [posixpath.join(start, info.base_name) for info in below if not info.is_file]
                for folder in folders:
                    if folder not in kept:
                        system.delete_dir(posixpath.join(root, folder))
                if not kept & set(folders):
                    system.delete_dir(posixpath.join(root, start))
            system.create_dir(root, recursive=True)
        except _ERRORS as error:
            raise RunError(f"checkpoints cannot be kept in {self.root}: {error}; see training.storage") from error
        numbers = [int(found[1]) for found in map(_START.fullmatch, starts) if found]
        return f"start-{1 + max(numbers, default=0):04d}"

    def discard(self) -> None:
        """Delete all of them; what cannot be deleted stays, as it is of no use any more."""
        with contextlib.suppress(*_ERRORS):
            system, root = self.where
            if isinstance(system, fs.LocalFileSystem):
                shutil.rmtree(root, ignore_errors=True)
            else:
                system.delete_dir(root)

    def _list(self, below: str = "", recursive: bool = False) -> list[fs.FileInfo]:
        system, root = self.where
        place = posixpath.join(root, below) if below else root
        found: list[fs.FileInfo] = system.get_file_info(
            fs.FileSelector(place, recursive=recursive, allow_not_found=True)
        )
        return found


def _read_seal(system: fs.FileSystem, path: str, root: str) -> Checkpoint | None:
    try:
        with system.open_input_file(path) as file:
            record = json.loads(file.read())
        files = {str(name): (int(size), str(digest)) for name, (size, digest) in record["files"].items()}
        return Checkpoint(posixpath.relpath(posixpath.dirname(path), root), int(record["step"]), files)
    except (FileNotFoundError, ValueError, TypeError, KeyError, AttributeError):
        return None  # deleted meanwhile, or half-written


def _whole(folder: Path, checkpoint: Checkpoint) -> bool:
    return all(
        (folder / name).is_file() and (folder / name).stat().st_size == size and _hash(folder / name) == digest
        for name, (size, digest) in checkpoint.files.items()
    )


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
