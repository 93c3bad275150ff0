"""Texts to train on, out of every format."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from repair_ray.data.records import DataError, Problem
from repair_ray.data.texts import Sentence, read_texts

TEXTS = ["A red circle, and a square.", 'two "big" stars', "三つの星"]


def sort_out(path: Path, column: str | None = None) -> tuple[list[str], Counter[str]]:
    items = list(read_texts(str(path), column))
    texts = [item.text for item in items if isinstance(item, Sentence)]
    return texts, Counter(item.reason for item in items if isinstance(item, Problem))


def test_a_sentence_a_line(tmp_path: Path) -> None:
    # Commas, tabs and quotes are part of the text; a byte order mark and Windows' line ends are not.
    text = "\ufeff" + "\r\n".join([TEXTS[0], "", "a\ttab,  and spaces", TEXTS[1], "   ", TEXTS[2], ""])
    (tmp_path / "texts.txt").write_bytes(text.encode("utf-8"))
    texts, problems = sort_out(tmp_path / "texts.txt")
    assert texts == [TEXTS[0], "a tab, and spaces", TEXTS[1], TEXTS[2]]
    assert problems == {"no_text": 2}
    sources = [item.source for item in read_texts(str(tmp_path / "texts.txt"))]
    assert sources == [f"{tmp_path}/texts.txt:{number}" for number in range(1, 7)]


@pytest.mark.parametrize("name", ["texts.csv", "texts.tsv", "texts.jsonl", "texts.parquet"])
@pytest.mark.parametrize(("column", "asked"), [("text", None), ("what it says", "what it says")])
def test_a_column_gives_the_same_texts(tmp_path: Path, name: str, column: str, asked: str | None) -> None:
    frame = pd.DataFrame({"other": [1, 2, 3], column: TEXTS})
    path = tmp_path / name
    if name.endswith("parquet"):
        frame.to_parquet(path)
    elif name.endswith("jsonl"):
        frame.to_json(path, orient="records", lines=True, force_ascii=False)
    else:
        frame.to_csv(path, index=False, sep="," if name.endswith("csv") else "\t")
    texts, problems = sort_out(path, asked)
    assert texts == TEXTS
    assert not problems


def test_a_list_in_a_cell_is_one_group(tmp_path: Path) -> None:
    path = tmp_path / "captions.parquet"
    pd.DataFrame({"captions": [["a", "b"], ["c"], []]}).to_parquet(path)
    items = list(read_texts(str(path)))
    assert [(item.text, item.group) for item in items if isinstance(item, Sentence)] == [
        ("a", f"{path}:1"),
        ("b", f"{path}:1"),
        ("c", None),
    ]
    assert [item.reason for item in items if isinstance(item, Problem)] == ["no_text"]


def test_rows_without_the_column_are_counted(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("text,n\na,1\nb\n,3\n")
    assert sort_out(tmp_path / "a.csv") == (["a"], {"bad_record": 1, "no_text": 1})
    (tmp_path / "a.jsonl").write_text('{"text": "a"}\n{"n": 1}\nnothing\n{"text": 5}\n')
    assert sort_out(tmp_path / "a.jsonl") == (["a"], {"bad_record": 1, "bad_json": 1, "no_text": 1})


def test_a_folder_is_read_in_order(tmp_path: Path) -> None:
    (tmp_path / "b.txt").write_text("second\n")
    (tmp_path / "a.txt").write_text("first\n")
    assert sort_out(tmp_path)[0] == ["first", "second"]


@pytest.mark.parametrize(
    ("text", "column", "expected"),
    [
        ("left,right\na,b\n", None, r"which column of .*a.csv holds the texts\? .*found: left, right"),
        ("left,right\na,b\n", "text", "has no column 'text'; its columns: left, right"),
    ],
)
def test_columns_that_are_not_there(tmp_path: Path, text: str, column: Any, expected: str) -> None:
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(DataError, match=expected):
        sort_out(tmp_path / "a.csv", column)


def test_a_column_of_a_text_file_makes_it_a_table(tmp_path: Path) -> None:
    (tmp_path / "captions.txt").write_text("image,caption\na.jpg,a dog\n")
    assert sort_out(tmp_path / "captions.txt", "caption")[0] == ["a dog"]
