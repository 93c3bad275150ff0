"""What a path holds, read as a run would read it: facts for `repair-ray data inspect`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from repair_ray.data.images import ImageProblem
from repair_ray.data.readers import find_reader, read
from repair_ray.data.records import DataError, Item, Problem, Record
from repair_ray.data.store import ImageStore

EXAMPLES = 3
UNKNOWN = "unknown"


@dataclass
class Reasons:
    """How often each reason came, and the first row of each."""

    counts: Counter[str] = field(default_factory=Counter)
    first: dict[str, Problem] = field(default_factory=dict)

    def add(self, problem: Problem) -> None:
        self.counts[problem.reason] += 1
        self.first.setdefault(problem.reason, problem)

    def facts(self) -> list[dict[str, Any]]:
        return [
            {
                "reason": reason,
                "count": count,
                "first": {"source": self.first[reason].source, "detail": self.first[reason].detail},
            }
            for reason, count in self.counts.most_common()
        ]


def inspect(
    path: str,
    format: str | None = None,
    *,
    limit: int | None = None,
    pictures: int = 100,
    store: ImageStore | None = None,
    **columns: Any,
) -> dict[str, Any]:
    """Read `path`, at most `limit` rows of it, and open its first pictures.

    Args:
        pictures: how many of the usable rows have their picture opened and decoded.
        store: opens them, with its limits; unset: with the defaults of a run.
        columns: image_root, image_column, caption_column, group_column, split_column, id_column, as `read` has them.

    Returns:
        Plain values: path, format, files, rows (usable ones), captions, splits {name: rows}, captions_a_picture
        {min, mean, max} (None without rows), examples, problems by reason with the first of each, pictures (opened,
        usable, width and height {min, max}, problems), complete (False where `limit` ended the reading), and error:
        what ended it, or that no row or no opened picture is usable; None where all is well.

    Raises:
        DataError: nothing was read at all: no such path, no known format, wrong columns.
    """
    reader, files = find_reader(path, format)
    seen = _Seen(store or ImageStore("/"), pictures)
    error = None
    try:
        seen.take(read(path, format, **columns), limit)
    except DataError as ended:
        if not seen.items:
            raise
        error = str(ended)
    if error is None and not seen.rows:
        error = f"none of the first {seen.items} rows of {path} ({reader.name}) is usable"
    facts = seen.facts()
    opened = facts["pictures"]["opened"]
    if error is None and opened and not facts["pictures"]["usable"]:
        first = facts["pictures"]["problems"][0]["first"]
        error = f"none of the {opened} pictures opened is usable; the first: {first['source']}: {first['detail']}"
    return {"path": path, "format": reader.name, "files": len(files), **facts, "error": error}


class _Seen:
    def __init__(self, store: ImageStore, pictures: int) -> None:
        self.items = 0
        self.rows = 0
        self._captions: Counter[int] = Counter()
        self._splits: Counter[str] = Counter()
        self._examples: list[dict[str, Any]] = []
        self._problems = Reasons()
        self._store = store
        self._pictures = pictures
        self._sizes: list[tuple[int, int]] = []
        self._bad = Reasons()
        self._complete = True

    def take(self, items: Iterable[Item], limit: int | None) -> None:
        for item in islice(items, limit):
            self.items += 1
            if isinstance(item, Problem):
                self._problems.add(item)
            else:
                self._record(item)
        self._complete = limit is None or self.items < limit

    def facts(self) -> dict[str, Any]:
        captions = sum(number * rows for number, rows in self._captions.items())
        looked_at = len(self._sizes) + self._bad.counts.total()
        return {
            "rows": self.rows,
            "captions": captions,
            "splits": dict(self._splits.most_common()),
            "captions_a_picture": {
                "min": min(self._captions),
                "mean": captions / self.rows,
                "max": max(self._captions),
            }
            if self.rows
            else None,
            "examples": self._examples,
            "problems": self._problems.facts(),
            "pictures": {
                "opened": looked_at,
                "usable": len(self._sizes),
                "width": _range([width for width, _ in self._sizes]),
                "height": _range([height for _, height in self._sizes]),
                "problems": self._bad.facts(),
            },
            "complete": self._complete,
        }

    def _record(self, record: Record) -> None:
        self.rows += 1
        self._captions[len(record.captions)] += 1
        self._splits[record.split or UNKNOWN] += 1
        if len(self._examples) < EXAMPLES:
            self._examples.append({"image_id": record.image_id, "split": record.split, "captions": record.captions})
        if self.rows <= self._pictures:
            self._open(record)

    def _open(self, record: Record) -> None:
        try:
            picture = self._store.picture(record.image)
        except ImageProblem as problem:
            self._bad.add(Problem(record.source, problem.reason, f"{record.image_id}: {problem.detail}"))
        else:
            self._sizes.append(picture.size)


def _range(values: list[int]) -> dict[str, int] | None:
    return {"min": min(values), "max": max(values)} if values else None
