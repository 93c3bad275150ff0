"""A benchmark's files: what is written is read, and what is broken is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from repair_ray.data.records import DataError
from repair_ray.evaluation.benchmark_files import (
    Benchmark,
    Picture,
    Query,
    is_benchmark,
    read_benchmark,
    write_benchmark,
)

MADE = Benchmark(
    [Query("q1", "ein rotes Haus ⟨é⟩"), Query("q2", 'say "no"\nmore', held_out=True)],
    [Picture("a", "a.jpg", "/pictures/a.jpg"), Picture("b", "b", "pictures-00000.tar", 512, 40, "f" * 64)],
    {"q1": ("b", "a"), "q2": ()},
    {"q1": (), "q2": ("a",)},
    {"name": "made", "background": [0, 10, 255]},
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_benchmark(tmp_path, MADE)
    return tmp_path


def test_what_is_written_is_read(folder: Path) -> None:
    assert is_benchmark(str(folder)) and not is_benchmark(str(folder / "none"))
    found = read_benchmark(folder)
    assert (found.queries, found.gallery) == (MADE.queries, MADE.gallery)
    assert (dict(found.matches), dict(found.ignored)) == (MADE.matches, MADE.ignored)
    assert found.background == (0, 10, 255)
    # The form of ECCV Caption's files.
    assert json.loads((folder / "matches.json").read_text()) == {"q1": ["b", "a"], "q2": []}


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("benchmark.json", "{}", r"benchmark\.json is not of the format 'repair-ray multi-match 1'"),
        ("benchmark.json", "[", r"cannot read .*benchmark\.json"),
        ("benchmark.json", '{"format": "repair-ray multi-match 1", "background": "red"}', "background 'red'"),
        (
            "queries.jsonl",
            '{"id": "q1", "text": "x"}\n{"id": "q1", "text": "y"}\n',
            r"line 2: the id 'q1' is there twice",
        ),
        ("queries.jsonl", '{"id": "q1"}\n', r"queries\.jsonl, line 1: .*text"),
        ("queries.jsonl", "3\n", r"queries\.jsonl, line 1"),
        ("queries.jsonl", "", r"queries\.jsonl is empty"),
        ("gallery.jsonl", None, r"cannot read .*gallery\.jsonl"),
        ("matches.json", '{"q3": ["a"]}', r"matches\.json: query 'q3' is not in queries\.jsonl"),
        ("matches.json", '{"q1": ["c"]}', r"matches\.json: picture 'c' of query q1 is not in gallery\.jsonl"),
        ("ignored.json", '{"q1": ["a"]}', r"picture a both matches query q1 and is ignored for it"),
    ],
)
def test_faults(folder: Path, file: str, text: Any, message: str) -> None:
    if text is None:
        (folder / file).unlink()
    else:
        (folder / file).write_text(text)
    with pytest.raises(DataError, match=message):
        read_benchmark(folder)
