"""Label files as people save them, each fault of one, and the sheets that are given out."""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from repair_ray.data.records import DataError
from repair_ray.evaluation.labels import SHEET, draw, read_labels, safe_cell, write_sheet


def labels(folder: Path, text: str | bytes, name: str = "ann.csv") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.parametrize(
    "text",
    [
        "failure_id,label\nf1,valid\nf2,unsure\n",
        "\ufefffailure_id;label\r\nf1;valid\r\nf2;unsure\r\n",  # as spreadsheets save it
        " failure_id \tother\t label\nf1\t\tvalid \nf2\tx\tunsure\n\n",
        'other,label,failure_id\n"two\nlines, and a comma",valid,f1\n,unsure,f2\n',
        "failure_id,label\nf1,valid\nf1,valid\nf2,unsure\nf3,\nf4\n",  # said twice; not labelled yet; cut short
    ],
)
def test_files_that_say_the_same(tmp_path: Path, text: str) -> None:
    assert read_labels([labels(tmp_path, text)]).by_annotator == {"ann": {"f1": "valid", "f2": "unsure"}}


def test_parquet_and_annotators(tmp_path: Path) -> None:
    columns = {"failure_id": ["f1", "f1", "f2"], "label": ["valid", "unsure", None], "annotator": ["bob", None, "bob"]}
    pq.write_table(pa.table(columns), tmp_path / "both")  # a name says nothing
    found = read_labels([tmp_path / "both", labels(tmp_path, "failure_id,label,annotator\nf2,valid,bob\n")])
    assert found.by_annotator == {"bob": {"f1": "valid", "f2": "valid"}, "both": {"f1": "unsure"}}
    assert found.unlabelled == 1 and found.failures == {"f1", "f2"}


def test_files_of_one_name_are_two_annotators(tmp_path: Path) -> None:
    for name, label in (("a", "valid"), ("b", "unsure")):
        (tmp_path / name).mkdir()
        labels(tmp_path / name, f"failure_id,label\nf1,{label}\n", "sheet.csv")
    paths = [tmp_path / name / "sheet.csv" for name in ("a", "b")]
    assert read_labels(paths).by_annotator == {str(paths[0]): {"f1": "valid"}, str(paths[1]): {"f1": "unsure"}}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("failure_id,verdict\nf1,valid\n", r"ann.csv has no column label; it has: failure_id, verdict"),
        ("", r"has no column failure_id and no column label; it has: none"),
        ("failure_id,label,label\nf1,valid,valid\n", "has the column label twice"),
        (
            "failure_id,label\nf1,valid\nf2,wrong\n",
            r"ann.csv, row 3: unknown label 'wrong'; allowed are valid, benign_match, bad_ground_truth, unsure",
        ),
        ("failure_id,label\nf1,Valid\n", r"row 2: unknown label 'Valid'"),
        ('failure_id,label,x\nf1,valid,"a\nb"\nf2,no,\n', r"row 3: unknown label 'no'"),
        ("failure_id,label\n,valid\n", r"row 2: a label without a failure_id"),
        (
            "failure_id,label,annotator\nf1,valid,bob\nf1,unsure,cyd\nf1,unsure,bob\n",
            r"row 4: bob labels failure f1 'unsure', and 'valid' in another row",
        ),
        ("failure_id,label\nf1,\n", r"no row has a label; write one of valid"),
        (b"failure_id,label\nf1,\xe9\n", "is not UTF-8"),
        (b"PAR1 but no table", "cannot be read as CSV or Parquet"),
        (b'failure_id,label\nf1,"' + b"x" * 200_000, "cannot be read as CSV or Parquet: field larger"),
    ],
)
def test_faults(tmp_path: Path, text: str | bytes, expected: str) -> None:
    with pytest.raises(DataError, match=expected):
        read_labels([labels(tmp_path, text)])


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"there is no labels file at .*none.csv"):
        read_labels([tmp_path / "none.csv"])
    with pytest.raises(DataError, match="cannot be read"):
        read_labels([tmp_path])


def verdicts() -> list[dict[str, Any]]:
    counts = {("i2t", "valid"): 600, ("i2t", "unsure"): 100, ("t2i", "valid"): 297, ("t2i", None): 3}
    return [
        {"failure_id": f"{direction}-{judgement}-{n}", "direction": direction, "judgement": judgement}
        for (direction, judgement), number in counts.items()
        for n in range(number)
    ]


def test_a_sample_is_in_proportion_shuffled_and_the_same_for_a_seed() -> None:
    drawn = draw(verdicts(), 100, seed=0)
    # 60, 10, 29.7 and 0.3 are due; the smallest comes at least once.
    assert Counter(name.rsplit("-", 1)[0] for name in drawn) == {
        "i2t-valid": 60,
        "i2t-unsure": 10,
        "t2i-valid": 29,
        "t2i-None": 1,
    }
    assert len(set(drawn)) == 100
    assert drawn == draw(list(reversed(verdicts())), 100, seed=0) != draw(verdicts(), 100, seed=1)
    assert 15 <= sum(name.startswith("i2t-valid") for name in drawn[:30]) <= 24  # 18 due; not in blocks
    assert sorted(draw(verdicts(), 5000, seed=0)) == sorted(row["failure_id"] for row in verdicts())
    assert len(draw(verdicts(), 2, seed=0)) == 2 and draw([], 5, seed=0) == []


def test_no_cell_of_a_sheet_is_a_formula_and_it_can_be_read_back(tmp_path: Path) -> None:
    evil = ["=HYPERLINK(1)", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1"]
    rows = [
        {
            "failure_id": f"f{n}",
            "direction": "i2t",
            "query_text": None,
            "candidate_text": text,
            "query_image": "a.png",
            "candidate_image": "b.png",
            "query_captions": [text, "a dog"],
            "candidate_captions": ['a "cat", asleep'],
        }
        for n, text in enumerate(evil)
    ]
    path = tmp_path / "sheet.csv"
    write_sheet(path, rows)
    with path.open(encoding="utf-8-sig", newline="") as file:
        written = list(csv.DictReader(file))
    assert tuple(written[0]) == SHEET
    assert [row["candidate_text"] for row in written] == [f"'{text}" for text in evil]
    assert written[0]["query_captions"] == "'=HYPERLINK(1) | a dog"
    assert written[0]["candidate_captions"] == 'a "cat", asleep'
    assert all(row["label"] == row["annotator"] == "" for row in written)
    filled = [{**row, "label": "valid", "annotator": "bob"} for row in written]
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, SHEET, delimiter=";")
        writer.writeheader()
        writer.writerows(filled)
    assert read_labels([path]).by_annotator == {"bob": {f"f{n}": "valid" for n in range(len(evil))}}
    with pytest.raises(DataError, match="exists, and may hold labels"):
        write_sheet(path, rows)


def test_plain_texts_stay() -> None:
    assert [safe_cell(text) for text in ("a = b", "", "'tis", "3-1")] == ["a = b", "", "'tis", "3-1"]
