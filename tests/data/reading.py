"""What the readers' tests share."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from repair_ray.data.readers import read
from repair_ray.data.records import DataError, Problem, Record


def photos(folder: Path, *names: str) -> None:
    """Files that readers take for pictures; none of them opens one."""
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"photo")


def sort_out(items: Any) -> tuple[list[Record], list[Problem]]:
    listed = list(items)
    return [i for i in listed if isinstance(i, Record)], [i for i in listed if isinstance(i, Problem)]


def captions_and_reasons(items: Any) -> tuple[dict[str, list[str]], Counter[str]]:
    """Captions by image id, and how often each kind of problem came."""
    records, problems = sort_out(items)
    return {record.image_id: record.captions for record in records}, Counter(problem.reason for problem in problems)


def error(path: str, **options: Any) -> str:
    """What reading the path is refused with."""
    with pytest.raises(DataError) as caught:
        list(read(path, **options))
    return str(caught.value)
