"""A multi-match benchmark as files in a folder, for any tool: what `repair-ray evaluate multimatch` measures on.

benchmark.json   what it is: format, sizes, how it was made, completeness, mAP's depth and denominator
queries.jsonl    {"id", "text", "held_out"} a line
gallery.jsonl    {"id", "name", "uri", "offset", "length", "sha256"} a line; a uri is below the folder, or absolute
matches.json     {query id: [picture ids]}, the form of ECCV Caption's caption-to-image file; every query is there
ignored.json     the same of pairs that nobody could decide: they count neither as right nor as wrong
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

from repair_ray.data.records import DataError
from repair_ray.evaluation.positives import read_ground_truth

FORMAT = "repair-ray multi-match 1"
FACTS, QUERIES, GALLERY = "benchmark.json", "queries.jsonl", "gallery.jsonl"
MATCHES, IGNORED = "matches.json", "ignored.json"


@dataclass(frozen=True)
class Query:
    """A query; `held_out`: labelled without any expert that is also a teacher."""

    id: str
    text: str
    held_out: bool = False


@dataclass(frozen=True)
class Picture:
    """A picture of the gallery and where its bytes lie: a file, or a byte range of one."""

    id: str
    name: str
    uri: str
    offset: int | None = None
    length: int | None = None
    sha256: str | None = None


@dataclass(frozen=True)
class Benchmark:
    """`matches` and `ignored` hold ids of pictures for each query's id."""

    queries: list[Query]
    gallery: list[Picture]
    matches: Mapping[str, tuple[str, ...]]
    ignored: Mapping[str, tuple[str, ...]]
    facts: dict[str, Any]

    @property
    def background(self) -> tuple[int, int, int]:
        """The colour under transparent pixels, as whoever labelled the pictures saw it."""
        red, green, blue = (int(value) for value in self.facts.get("background") or (255, 255, 255))
        return red, green, blue


def is_benchmark(path: str) -> bool:
    """Whether a benchmark's folder lies there."""
    return (Path(path) / FACTS).is_file()


def write_benchmark(folder: Path, made: Benchmark) -> None:
    """Write the files of a benchmark; the folder is there."""
    for name, rows in ((QUERIES, made.queries), (GALLERY, made.gallery)):
        with (folder / name).open("w", encoding="utf-8") as file:
            file.writelines(json.dumps(asdict(row), ensure_ascii=False) + "\n" for row in rows)  # type: ignore[call-overload]
    for name, found in ((MATCHES, made.matches), (IGNORED, made.ignored)):
        _write(folder / name, {query: list(pictures) for query, pictures in found.items()})
    _write(folder / FACTS, {"format": FORMAT, **made.facts})


def _write(path: Path, tree: Any) -> None:
    path.write_text(json.dumps(tree, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def read_benchmark(folder: Path) -> Benchmark:
    """Read the files of a benchmark.

    Raises:
        DataError: a missing or broken file, another format, an id twice, or a match of a query or picture that is not
            there; names the file and the line or id.
    """
    try:
        facts = json.loads((folder / FACTS).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"cannot read {folder / FACTS}: {error}") from None
    if not isinstance(facts, dict) or facts.get("format") != FORMAT:
        raise DataError(f"{folder / FACTS} is not of the format {FORMAT!r}")
    colour = facts.get("background") or [255, 255, 255]
    if not (isinstance(colour, list) and len(colour) == 3 and all(isinstance(v, int) for v in colour)):
        raise DataError(f"{folder / FACTS}: background {colour!r} is not of three numbers, red, green and blue")
    queries = _lines(folder / QUERIES, Query)
    gallery = _lines(folder / GALLERY, Picture)
    matches, ignored = (_pairs(folder / name, queries, gallery) for name in (MATCHES, IGNORED))
    for query in queries:
        both = set(matches.get(query.id, ())) & set(ignored.get(query.id, ()))
        if both:
            raise DataError(f"{folder}: picture {min(both)} both matches query {query.id} and is ignored for it")
    return Benchmark(queries, gallery, matches, ignored, facts)


Row = TypeVar("Row", Query, Picture)


def _lines(path: Path, kind: type[Row]) -> list[Row]:
    names = {field.name for field in fields(kind)}
    found: dict[str, Row] = {}
    try:
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, start=1):
                try:
                    row = kind(**{name: value for name, value in json.loads(line).items() if name in names})
                except (ValueError, TypeError, AttributeError) as error:
                    raise DataError(f"{path}, line {number}: {error}") from None
                if row.id in found:
                    raise DataError(f"{path}, line {number}: the id {row.id!r} is there twice")
                found[row.id] = row
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot read {path}: {error}") from None
    if not found:
        raise DataError(f"{path} is empty")
    return list(found.values())


def _pairs(path: Path, queries: Iterable[Query], gallery: Iterable[Picture]) -> Mapping[str, tuple[str, ...]]:
    found = read_ground_truth(path).answers
    known_queries, known_pictures = {query.id for query in queries}, {picture.id for picture in gallery}
    for query, pictures in found.items():
        if query not in known_queries:
            raise DataError(f"{path}: query {query!r} is not in {QUERIES}")
        strange = next((picture for picture in pictures if picture not in known_pictures), None)
        if strange is not None:
            raise DataError(f"{path}: picture {strange!r} of query {query} is not in {GALLERY}")
    return found
