"""What a retriever is measured on: pictures with their captions, one after another, of a run or of any data set."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

import yaml
from PIL import Image
from pydantic import ValidationError

from repair_ray import tables
from repair_ray.config import Config, ConfigError, DataConfig
from repair_ray.data.access import image_store, read_data
from repair_ray.data.caption_ids import PictureIds, read_caption_ids
from repair_ray.data.files import is_remote
from repair_ray.data.images import ImageProblem
from repair_ray.data.readers.karpathy import detect as is_karpathy
from repair_ray.data.records import DataError, Problem, Record, canonical_split
from repair_ray.run import CAPTIONS, IMAGES, Run
from repair_ray.sections.base import Section

SHOWN = 3
S = TypeVar("S", bound=Section)


@dataclass(frozen=True)
class Text:
    """A caption: its id, its text, and the names that ground-truth files may give it."""

    identity: str
    text: str
    names: tuple[str, ...]


@dataclass(frozen=True)
class Shown:
    """A picture with its captions: its id, its names, and the group of what it shows (None: itself)."""

    identity: str
    names: tuple[str, ...]
    group: str | None
    captions: tuple[Text, ...]
    picture: Image.Image


@dataclass
class Unused:
    """What could not be used, by reason, and where it lies."""

    reasons: Counter[str] = field(default_factory=Counter)
    places: list[str] = field(default_factory=list)

    def add(self, reason: str, where: str) -> None:
        self.reasons[reason] += 1
        self.places.append(where)

    def facts(self) -> dict[str, Any]:
        """How many there are, by reason, and the first few."""
        return {"n": len(self.places), "reasons": dict(self.reasons), "such_as": self.places[:SHOWN]}

    def examples(self) -> str:
        """`2 missing_file (such as a.jpg, b.jpg)`, or that there are none."""
        counts = ", ".join(f"{n} {reason}" for reason, n in self.reasons.items())
        return f"{counts} (such as {', '.join(self.places[:SHOWN])})" if counts else "there are none"


class Source(Protocol):
    """One split of a data set, in file order."""

    split: str
    path: str
    unused: Unused

    def items(self) -> Iterator[Shown]:
        """The pictures that can be opened; the others are counted in `unused`. Raises `DataError` where none can."""


class RunSource:
    """A split of a run's own data, as its tables have it, in the order of the files that it came from."""

    def __init__(self, run: Run, config: Config, split: str) -> None:
        self.split, self.path, self.unused = split, str(run.folder), Unused()
        self._run = run
        self._store = image_store(run.folder, config.data)

    def items(self) -> Iterator[Shown]:
        captions: dict[str, list[dict[str, Any]]] = {}
        columns = ["caption_id", "image_id", "position", "text", "status"]
        for row in self._run.read(CAPTIONS, columns).to_pylist():
            if row["status"] == tables.OK:
                captions.setdefault(row["image_id"], []).append(row)
        rows = [row for row in self._run.read(IMAGES).to_pylist() if row["split"] == self.split]
        if not rows:
            raise DataError(f"the run at {self.path} has no picture of split {self.split!r}")
        for row in sorted(rows, key=lambda row: _file_order(row["source"])):
            if row["status"] != tables.OK:
                self.unused.add(row["reason"] or row["status"], row["source"])
                continue
            try:
                picture = self._store.rgb(row["uri"], row["offset"], row["length"])
            except ImageProblem as problem:
                self.unused.add(problem.reason, row["source"])
                continue
            own = sorted(captions.get(row["image_id"], []), key=lambda caption: caption["position"])
            name = row["name"] or row["image_id"]
            texts = tuple(Text(c["caption_id"], c["text"], (c["caption_id"], f"{name}#{c['position']}")) for c in own)
            names = (row["image_id"], name, name.rpartition("/")[2])
            yield Shown(row["image_id"], names, row["group_id"], texts, picture)


def _file_order(source: str) -> tuple[str, int]:
    file, _, row = source.rpartition(":")
    return (file, int(row)) if row.isdecimal() else (source, 0)


class PathSource:
    """A split of a data set that a reader knows.

    Ids are those that a run of the same data gives, so that figures of both can be compared. Names for ground truth are
    the picture's own, with `#0`, `#1`, ... for its captions, and the ids of a Karpathy or COCO JSON (`ids`, or the data
    set itself).
    """

    def __init__(self, data: DataConfig, split: str, ids: Path | None = None) -> None:
        assert data.path is not None
        self.split, self.path, self.unused = canonical_split(split) or split, data.path, Unused()
        self._data = data
        self._ids = read_caption_ids(ids) if ids else _own_ids(data.path)
        self._store = image_store(".", data)

    def items(self) -> Iterator[Shown]:
        data = self._data
        found = read_data(data, self.path, self.split)
        taken = 0
        for item in found:
            if isinstance(item, Problem):
                self.unused.add(item.reason, item.source)
                continue
            if data.limit is not None and taken >= data.limit:
                continue
            try:
                picture = self._store.picture(item.image)
            except ImageProblem as problem:
                self.unused.add(problem.reason, item.source)
                continue
            taken += 1
            yield self._shown(item, picture)

    def _shown(self, record: Record, picture: Image.Image) -> Shown:
        identity = tables.row_id(self.split, record.image_id)
        group = tables.row_id("group", self.split, record.group) if record.group else None
        known = self._ids.get(record.image_id.rpartition("/")[2], PictureIds())
        left = list(known.captions)
        texts = []
        for position, text in enumerate(record.captions):
            names = [f"{record.image_id}#{position}"]
            # Each id once, also where one picture has the same caption twice.
            place = next((i for i, (_, other) in enumerate(left) if other == text), None)
            if place is not None:
                names.append(left.pop(place)[0])
            texts.append(Text(tables.row_id(identity, position, text), text, tuple(names)))
        own = (record.image_id, record.image_id.rpartition("/")[2])
        return Shown(identity, own if known.image is None else (*own, known.image), group, tuple(texts), picture)


def source_of(
    data: str | None, own: tuple[Run, Config] | None, split: str | None, settings: list[str], ids: Path | None = None
) -> Source:
    """The source that a command names: a data set's path, a run directory, or nothing for a run's own data.

    Args:
        own: the run whose retriever is measured, where it is a run's.
        settings: `key=value` of the config's data section, for a data set's path.

    Raises:
        RunError, DataError, ConfigError: no data, or settings that do not fit it.
    """
    if data is None and own is None:
        raise DataError("name the data: a path as data.path in a config, or a run directory")
    if data is None or (Path(data) / "config.json").is_file():
        from repair_ray.measuring.retrievers import run_of

        if settings or ids:
            raise DataError("--data and --ids are for a data set's path; a run has read its data already")
        run, config = own if own is not None and data is None else run_of(str(data))
        return RunSource(run, config, split or config.evaluation.split)
    return PathSource(data_config(data, settings), split or "test", ids)


def data_config(path: str, settings: list[str]) -> DataConfig:
    """The config's data section for a path with `key=value` settings. Raises `ConfigError`."""
    return section_of(DataConfig, "data", settings, "image_root=/data/images", fixed={"path": path})


def section_of(
    kind: type[S],
    name: str,
    settings: list[str],
    example: str,
    *,
    given: dict[str, Any] | None = None,
    fixed: dict[str, Any] | None = None,
) -> S:
    """A section of a config by that name: `given` values, changed by `key=value` settings, and `fixed` ones.

    Raises:
        ConfigError: a setting of another form, or a wrong one.
    """
    values: dict[str, Any] = {}
    for setting in settings:
        key, separator, text = setting.partition("=")
        if not separator:
            raise ConfigError(f"--{name} {setting!r} is not of the form key=value, such as {example}")
        try:
            values[key.removeprefix(f"{name}.")] = yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise ConfigError(f"--{name} {setting!r}: the value is not YAML: {error}") from None
    try:
        return kind.model_validate({**(given or {}), **values, **(fixed or {})})
    except ValidationError as error:
        lines = [f"{'.'.join(map(str, found['loc'])) or name}: {found['msg']}" for found in error.errors()]
        raise ConfigError(f"--{name}: {'; '.join(lines)}") from None


def _own_ids(path: str) -> dict[str, PictureIds]:
    """The ids that the data set's own file carries, where it is a Karpathy JSON of local disk with `sentid`."""
    file = Path(path)
    if is_remote(path) or not file.is_file():
        return {}
    with file.open("rb") as opened:
        if not is_karpathy(opened.read(4096)):
            return {}
    try:
        return read_caption_ids(file)
    except DataError:
        return {}  # a Karpathy JSON without ids is a data set all the same
