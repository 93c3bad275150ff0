"""A run directory: products with manifests, written last; fingerprints that tell fresh from stale.

A product is a folder below the run directory: a table (Parquet files), or a training run's checkpoint. It exists for
its readers once `manifest.json` lies in it. The manifest records what the product was made from; `Run.ready` compares
that with what the config asks for now.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from filelock import FileLock, Timeout

from repair_ray.tables import Table
from repair_ray.tables.files import Parts, StatusCounts

MANIFEST = "manifest.json"
BEGUN = "begun.json"
# The products that every run begins with.
IMAGES = "data/images"
CAPTIONS = "data/captions"


class RunError(Exception):
    """The run cannot go on; the message says what was wrong, where, and what to do."""


@dataclass(frozen=True)
class Recipe:
    """What a product is made from: settings by full key, the version of the stage's code, and parent products."""

    settings: dict[str, Any]
    parents: tuple[str, ...] = ()
    version: int = 1


@dataclass
class StageRecord:
    """One line of the closing table. `statuses` counts rows by status, `reasons` the rejects and errors by reason.

    `started` and `finished`: seconds since 1970. A stage that was stopped in between worked for `seconds` of that time.
    """

    name: str
    seconds: float
    rows: int
    started: float
    finished: float
    statuses: dict[str, int] = field(default_factory=dict)
    reasons: dict[str, int] = field(default_factory=dict)

    @property
    def rows_per_second(self) -> float:
        return self.rows / self.seconds if self.seconds else 0.0


class Run:
    """One run directory, locked while a process works in it."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder).absolute()
        self._products: dict[str, str] = {}

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Create the folder and hold its lock. Raises `RunError` when it is not writable or is in use."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            lock = FileLock(self.folder / ".lock", timeout=0)
            lock.acquire()
        except Timeout:
            raise RunError(f"another process works in {self.folder}; wait for it, or take another name=") from None
        except OSError as error:
            raise RunError(
                f"cannot write to {self.folder}: {error.strerror or error}; set output= to a writable folder"
            ) from None
        try:
            yield
        finally:
            lock.release()

    def path(self, product: str) -> Path:
        return self.folder / product

    def manifest(self, product: str) -> dict[str, Any] | None:
        """The manifest of a finished product, or None."""
        return read_json(self.path(product) / MANIFEST)

    def products(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Finished products with their manifests, in the order in which they were finished."""
        found = [(path.parent, read_json(path)) for path in find_files(self.folder, MANIFEST)]
        ordered = sorted(((p, m) for p, m in found if m), key=lambda item: item[1]["finished"])
        for folder, manifest in ordered:
            yield folder.relative_to(self.folder).as_posix(), manifest

    def ready(self, product: str, recipe: Recipe) -> bool:
        """Whether the product is finished and made by this recipe; a half-made one of the same recipe is kept.

        Raises:
            RunError: the product (or its half-made files) was made by another recipe. Names the settings.
        """
        basis = self._basis(recipe)
        folder = self.path(product)
        made = read_json(folder / MANIFEST)
        begun = read_json(folder / BEGUN)
        for record in (made, begun):
            if record is not None and record["recipe"] != basis:
                raise RunError(
                    f"{product} in {self.folder} was made with other settings: {_difference(record['recipe'], basis)}. "
                    f"Use --redo {product} to make it and what hangs on it again, or a new name="
                )
        if made is not None:
            return True
        folder.mkdir(parents=True, exist_ok=True)
        if begun is None:
            write_json(folder / BEGUN, {"recipe": basis, "started": time.time(), "seconds": 0.0})
        return False

    def clock(self, product: str) -> Clock:
        """The seconds spent on a product that is being made."""
        return Clock(self.path(product) / BEGUN)

    def parents(self, product: str) -> set[str] | None:
        """The products that a finished or half-made product is made from; None where there is no such product."""
        record = self.manifest(product) or read_json(self.path(product) / BEGUN)
        return None if record is None else set(record["recipe"]["parents"])

    def made_from(self, product: str) -> dict[str, str]:
        """The tables that an `edits` table was made from, as `failures` and `verdicts`; empty where there is none."""
        return dict((self.manifest(product) or {}).get("made_from", {}))

    def finish(self, product: str, recipe: Recipe, seconds: float, **facts: Any) -> None:
        """Write the manifest: from now on the product exists."""
        basis = self._basis(recipe)
        finished = time.time()
        begun = read_json(self.path(product) / "begun.json") or {}
        manifest = {
            "product": product,
            "fingerprint": fingerprint(basis),
            "recipe": basis,
            "seconds": round(seconds, 3),
            "started": begun.get("started", finished - seconds),
            "finished": finished,
            **facts,
        }
        write_json(self.path(product) / MANIFEST, manifest)
        (self.path(product) / BEGUN).unlink(missing_ok=True)

    def commit(self, product: str, recipe: Recipe, kind: Table, table: pa.Table, seconds: float, **facts: Any) -> None:
        """Sort a table by its ids, write it as Parquet and finish the product."""
        table = table.cast(kind.schema).sort_by([(column, "ascending") for column in kind.sort_by])
        self.commit_pieces(product, recipe, kind, [table], lambda: seconds, **facts)

    def commit_pieces(
        self,
        product: str,
        recipe: Recipe,
        kind: Table,
        pieces: Iterable[pa.Table],
        seconds: Callable[[], float],
        **facts: Any,
    ) -> None:
        """Write a table that comes in pieces, sorted by its ids over all of them, and finish the product.

        One piece is held at a time. `seconds` is asked once all is written.
        """
        folder = self.path(product)
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.glob("part-*.parquet"):
            old.unlink()
        counts = StatusCounts()
        with Parts(folder, kind.schema) as parts:
            for piece in pieces:
                parts.write(piece)
                counts.add(piece)
        self.finish(
            product,
            recipe,
            seconds(),
            table=kind.name,
            rows=parts.rows,
            statuses=counts.statuses,
            reasons=counts.reasons,
            **facts,
        )

    def read(self, product: str, columns: list[str] | None = None, where: pc.Expression | None = None) -> pa.Table:
        """A finished table, or its rows that meet a condition. Raises `RunError` when it is not finished."""
        return pq.read_table(self.parts(product), columns=columns, filters=where)

    def parts(self, product: str) -> list[Path]:
        """The Parquet files of a finished table, in order. Raises `RunError` when it is not finished."""
        if self.manifest(product) is None:
            raise RunError(f"{product} does not exist yet in {self.folder}")
        return sorted(self.path(product).glob("part-*.parquet"))

    def redo(self, stage: str) -> list[str]:
        """Remove every product of a stage and all that was made from it; returns their names.

        Raises:
            RunError: no product has that name.
        """
        known = self._parents()
        doomed = {name for name in known if name == stage or name.split("/")[-1] == stage}
        if not doomed:
            raise RunError(
                f"--redo {stage}: no such stage in {self.folder}; it has: {', '.join(sorted(known)) or 'none'}"
            )
        removed = self._unsettled(doomed, known)
        for name in removed:
            (self.path(name) / MANIFEST).unlink(missing_ok=True)
            shutil.rmtree(self.path(name), ignore_errors=True)
        return removed

    def set_aside(self, chosen: Callable[[str], bool], place: Path) -> list[str]:
        """Move products that are chosen by name, and all that was made from them, to a folder; returns their names."""
        known = self._parents()
        moved = self._unsettled({name for name in known if chosen(name)}, known)
        for name in moved:
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            os.replace(self.path(name), place / name)
        return moved

    def _parents(self) -> dict[str, list[str]]:
        """What each product, finished or half-made, is made from."""
        begun = [path.parent.relative_to(self.folder).as_posix() for path in find_files(self.folder, BEGUN)]
        known = {name: manifest["recipe"]["parents"] for name, manifest in self.products()}
        known |= {name: (read_json(self.path(name) / BEGUN) or {})["recipe"]["parents"] for name in begun}
        return known

    def _unsettled(self, doomed: set[str], known: dict[str, list[str]]) -> list[str]:
        """Products and all that was made from them, in order; what the summary says is no longer so."""
        while grown := {name for name, parents in known.items() if set(parents) & doomed} - doomed:
            doomed = doomed | grown
        if doomed:
            # The end of the run writes it again.
            (self.folder / "summary.json").unlink(missing_ok=True)
        return sorted(doomed)

    def records(self) -> list[StageRecord]:
        """One record a finished product, in order."""
        return [
            StageRecord(
                name,
                m["seconds"],
                m.get("rows", 0),
                # Products of earlier versions do not say when they were begun.
                m.get("started", m["finished"] - m["seconds"]),
                m["finished"],
                m.get("statuses", {}),
                m.get("reasons", {}),
            )
            for name, m in self.products()
        ]

    def _basis(self, recipe: Recipe) -> dict[str, Any]:
        parents = {}
        for parent in recipe.parents:
            manifest = self.manifest(parent)
            if manifest is None:
                raise RunError(f"{parent} must be finished first in {self.folder}")
            parents[parent] = manifest["fingerprint"]
        return json.loads(json.dumps({"settings": recipe.settings, "version": recipe.version, "parents": parents}))


class Clock:
    """Seconds spent on a product, in this process and in earlier ones that were killed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._record = read_json(path) or {}
        self._start = time.monotonic()

    @property
    def seconds(self) -> float:
        return float(self._record.get("seconds", 0.0)) + time.monotonic() - self._start

    def keep(self, **facts: Any) -> None:
        """Write the seconds down, for a process that goes on after this one was killed."""
        write_json(self._path, {**self._record, **facts, "seconds": self.seconds})


def fingerprint(basis: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(basis, sort_keys=True).encode()).hexdigest()[:16]


def flat(settings: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """A nested mapping as one level of full keys."""
    found: dict[str, Any] = {}
    for key, value in settings.items():
        name = f"{prefix}{key}"
        found |= flat(value, f"{name}.") if isinstance(value, dict) and value else {name: value}
    return found


def _difference(made: dict[str, Any], now: dict[str, Any]) -> str:
    old, new = flat(made["settings"]), flat(now["settings"])
    keys = [key for key in sorted(old.keys() | new.keys()) if old.get(key) != new.get(key)]
    parts = [f"{key} was {old.get(key)!r}, is now {new.get(key)!r}" for key in keys]
    if made["version"] != now["version"]:
        parts.append(f"the stage's code was version {made['version']}, is now {now['version']}")
    parts += [f"{name} was made anew" for name in now["parents"] if now["parents"][name] != made["parents"].get(name)]
    return "; ".join(parts) or "other parents"


def find_files(folder: Path, name: str) -> list[Path]:
    """Files of that name below a folder, sorted; hidden folders, and those that vanish meanwhile, are passed over."""
    found = []
    for place, folders, files in os.walk(folder):
        folders[:] = [below for below in folders if not below.startswith(".")]
        if name in files:
            found.append(Path(place) / name)
    return sorted(found)


def read_json(path: Path) -> dict[str, Any] | None:
    """A JSON file written by `write_json`, or None where there is none."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None


def write_json(path: Path, value: Any) -> None:
    """Write JSON so that a reader sees the old file or the whole new one, also after a crash."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with temporary.open("w", encoding="utf-8") as file:
        json.dump(value, file, indent=1, sort_keys=True, ensure_ascii=False)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
