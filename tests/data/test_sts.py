"""Pairs of sentences and texts out of every format: what is read, what is counted as bad, and what is refused."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from repair_ray.data.records import DataError, Problem
from repair_ray.data.sts import SentencePair, read_sts

PAIRS = [("A plane takes off.", "An air plane is taking off.", 5.0), ("A man, a flute", 'he "plays"', 1.25)]
BENCHMARK = "main-captions\tMSRvid\t2012test\t{n}\t{score}\t{first}\t{second}"


def sort_out(path: Path, **options: Any) -> tuple[list[tuple[str, str, float]], Counter[str]]:
    """Pairs in order, and how often each kind of problem came."""
    items = list(read_sts(str(path), **options))
    pairs = [(item.first, item.second, item.score) for item in items if isinstance(item, SentencePair)]
    return pairs, Counter(item.reason for item in items if isinstance(item, Problem))


def rows(first: str, second: str, score: str) -> list[dict[str, Any]]:
    return [{first: a, second: b, score: s} for a, b, s in PAIRS]


def write(folder: Path, name: str, text: str) -> Path:
    (folder / name).write_text(text, encoding="utf-8")
    return folder / name


def test_the_benchmarks_own_file_has_no_header_and_quotes_that_open_nothing(tmp_path: Path) -> None:
    lines = [
        BENCHMARK.format(n="0001", score="5.000", first=PAIRS[0][0], second=PAIRS[0][1]),
        BENCHMARK.format(n="0002", score="1.250", first='"Stop, he said', second="a, b, c, d, e, f, g, h"),
        # Some of its rows name where both sentences are from.
        BENCHMARK.format(n="0003", score="0", first="One", second='"Two"') + "\tlicence\tlicence",
    ]
    pairs, problems = sort_out(write(tmp_path, "sts-dev.csv", "\n".join(lines)))
    assert pairs == [
        PAIRS[0],
        ('"Stop, he said', "a, b, c, d, e, f, g, h", 1.25),
        ("One", "Two", 0.0),
    ]
    assert not problems


@pytest.mark.parametrize("name", ["pairs.csv", "pairs.tsv", "pairs.txt", "pairs.jsonl", "pairs.parquet"])
@pytest.mark.parametrize("names", [("sentence1", "sentence2", "score"), ("a", "b", "how near")])
def test_columns_by_name_give_the_same_pairs(tmp_path: Path, name: str, names: tuple[str, str, str]) -> None:
    frame = pd.DataFrame([{"genre": "x", **row} for row in rows(*names)])
    path = tmp_path / name
    if name.endswith("parquet"):
        frame.to_parquet(path)
    elif name.endswith("jsonl"):
        frame.to_json(path, orient="records", lines=True)
    else:
        frame.to_csv(path, index=False, sep="," if name.endswith("csv") else "\t")
    columns = None if names[0] == "sentence1" else (names[2], names[0], names[1])
    pairs, problems = sort_out(path, columns=columns)
    assert pairs == PAIRS
    assert not problems


@pytest.mark.parametrize("line", ["5.0\tA plane takes off.\tAn air plane.", "A plane takes off.\tAn air plane.\t5.0"])
def test_three_columns_without_a_header(tmp_path: Path, line: str) -> None:
    pairs, _ = sort_out(write(tmp_path, "pairs.tsv", line + "\n"))
    assert pairs == [("A plane takes off.", "An air plane.", 5.0)]


def test_semeval_lies_in_two_files_a_subset(tmp_path: Path) -> None:
    write(tmp_path, "STS.input.MSRpar.txt", "a b\tc d\nno tab here\ne f\tg h\textra\ni\tj\n")
    write(tmp_path, "STS.gs.MSRpar.txt", "4.5\n3\n\n0.5\n")
    write(tmp_path, "STS.input.OnWN.txt", "k\tl\n")
    write(tmp_path, "STS.gs.OnWN.txt", "2\n")
    write(tmp_path, "README.txt", "not a pair")
    one, problems = sort_out(tmp_path / "STS.input.MSRpar.txt")
    assert one == [("a b", "c d", 4.5), ("i", "j", 0.5)]
    assert problems == {"bad_record": 1, "no_score": 1}
    items = [item for item in read_sts(str(tmp_path)) if isinstance(item, SentencePair)]
    assert [(item.subset, item.first) for item in items] == [("MSRpar", "a b"), ("MSRpar", "i"), ("OnWN", "k")]


def test_semeval_without_its_scores(tmp_path: Path) -> None:
    path = write(tmp_path, "STS.input.txt", "a\tb\nc\td\n")
    with pytest.raises(DataError, match=r"its scores, STS\.gs\.\.\., must lie beside it"):
        sort_out(path)
    write(tmp_path, "STS.gs.txt", "1\n")
    with pytest.raises(DataError, match=r"has 2 lines and .*STS.gs.txt 1: they do not belong together"):
        sort_out(path)


def test_bad_rows_are_counted_and_named(tmp_path: Path) -> None:
    lines = [
        "score\tsentence1\tsentence2",
        "5\ta\tb",
        "5\ta",
        "much\ta\tb",
        "nan\ta\tb",
        "\ta\tb",
        "1\t \tb",
        "",
        "2\tc\td",
    ]
    path = write(tmp_path, "pairs.tsv", "\n".join(lines))
    pairs, problems = sort_out(path)
    assert pairs == [("a", "b", 5.0), ("c", "d", 2.0)]
    assert problems == {"bad_record": 1, "bad_score": 2, "no_score": 1, "no_text": 1}
    first = next(item for item in read_sts(str(path)) if isinstance(item, Problem))
    assert (first.source, first.reason) == (f"{path}:3", "bad_record")


def test_bad_json_lines_are_counted_and_named(tmp_path: Path) -> None:
    good = json.dumps({"score": 1, "sentence1": "a", "sentence2": "b"})
    lines = [good, "{", "[1]", '{"score": 1, "sentence1": "a"}', '{"score": true, "sentence1": "a", "sentence2": "b"}']
    path = write(tmp_path, "pairs.jsonl", "\n".join(lines))
    pairs, problems = sort_out(path)
    assert pairs == [("a", "b", 1.0)]
    assert problems == {"bad_json": 2, "bad_record": 1, "bad_score": 1}


@pytest.mark.parametrize(
    ("name", "text", "columns", "expected"),
    [
        ("a.csv", "left,right,much\n1,2,3\n", None, "has no columns score, sentence1, sentence2; found: left, right"),
        ("a.csv", "score,sentence1,sentence2\n1,a,b\n", ("much", "x", "y"), "has no columns much, x, y; found: score"),
        ("a.jsonl", '{"text": "a"}\n', None, "has no columns score, sentence1, sentence2; found: text"),
        ("a.csv", "\n1,2\n", None, "starts with an empty line"),
        ("a.csv", "one column\n", None, "found: one column"),
        ("a.parquet", "PAR1 and no more", None, "cannot read"),
    ],
)
def test_files_that_are_refused(tmp_path: Path, name: str, text: str, columns: Any, expected: str) -> None:
    with pytest.raises(DataError, match=expected):
        sort_out(write(tmp_path, name, text), columns=columns)


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file or folder"):
        sort_out(tmp_path / "none.tsv")
    with pytest.raises(DataError, match="holds no file"):
        sort_out(tmp_path)


def test_latin_1_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_bytes("score\tsentence1\tsentence2\n1\tcafé\tb\n".encode("latin-1"))
    with pytest.raises(DataError, match="is not UTF-8 text"):
        sort_out(tmp_path / "a.tsv")
