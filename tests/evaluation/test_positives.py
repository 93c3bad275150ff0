"""Ground truth of other authors: ECCV Caption's and CxC's forms, ids that match, and ids that do not."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from repair_ray.data.records import DataError
from repair_ray.evaluation.positives import (
    Answers,
    GroundTruth,
    Names,
    known_answers,
    match,
    number_of,
    read_ground_truth,
    read_ratings,
)
from tests.evaluation.test_retrieval_metrics import places

# Two pictures of COCO with two and one caption, as a reader and a Karpathy JSON name them.
PICTURES = [
    ("val2014/COCO_val2014_000000000042.jpg", "COCO_val2014_000000000042.jpg", "42"),
    ("val2014/COCO_val2014_000000391895.jpg", "391895"),
]
CAPTIONS = [("p#0", "700"), ("p#1", "701"), ("q#0", "702")]
OWN = places([0, 1], [2])


def test_numbers() -> None:
    assert number_of("COCO_val2014_000000391895.jpg") == number_of("391895") == "391895"
    assert number_of("COCO_val2014:sentid:732091") == "732091"
    assert number_of("a.jpg#3") is None and number_of("dog.jpg") is None


def test_eccv_files(tmp_path: Path) -> None:
    file = tmp_path / "eccv_image_to_caption.json"
    file.write_text(json.dumps({"42": [700, 702, 702, 999], "391895": [702], "555": [700]}))
    found = match(read_ground_truth(file), Names(PICTURES), Names(CAPTIONS), OWN)
    assert found.queries.tolist() == [0, 1]
    assert [own.tolist() for own in found.positives] == [[0, 2], [2]]
    assert found.facts["listed"] == 3
    assert found.facts["missing_queries"] == {"n": 1, "such_as": ["555"]}
    assert found.facts["missing_answers"] == {"n": 1, "such_as": ["999"]}


def test_only_the_queries_of_the_file_are_asked() -> None:
    found = match(GroundTruth({"391895": ("700",)}, "x.json"), Names(PICTURES), Names(CAPTIONS), OWN)
    assert found.queries.tolist() == [1] and found.positives[0].tolist() == [0]


def test_cxc_ratings_add_to_own_pairs(tmp_path: Path) -> None:
    file = tmp_path / "sits_test.csv"
    file.write_text(
        "caption,image,agg_score,sampling_method\n"
        "COCO_val2014:sentid:702,COCO_val2014_000000000042.jpg,3.0,c2i_intrasim\n"
        "COCO_val2014:sentid:700,COCO_val2014_000000391895.jpg,2.9,c2i_intrasim\n"
        "COCO_val2014:sentid:700,COCO_val2014_000000000777.jpg,5,c2i_intrasim\n"
    )
    truth = read_ratings(file)
    t2i = match(truth["t2i"], Names(CAPTIONS), Names(PICTURES), places([0], [0], [1]))
    assert [own.tolist() for own in t2i.positives] == [[0], [0], [0, 1]]
    assert t2i.facts["missing_answers"] == {"n": 1, "such_as": ["COCO_val2014_000000000777.jpg"]}
    i2t = match(truth["i2t"], Names(PICTURES), Names(CAPTIONS), OWN)
    assert [own.tolist() for own in i2t.positives] == [[0, 1, 2], [2]]


def test_a_number_that_two_items_share_finds_neither() -> None:
    names = Names([("a_1.jpg",), ("b_1.jpg",), ("c_2.jpg",)])
    assert names.find("1") is None and names.find("2") == 2 and names.find("a_1.jpg") == 0
    # Another picture's name that ends in the same number is another picture.
    assert names.find("d_2.jpg") is None


def test_ids_of_another_data_set_are_refused() -> None:
    truth = GroundTruth({"1": ("2",), "3": ("4",)}, "truth.json")
    with pytest.raises(DataError, match=r"none of the queries of truth.json, such as 1, 3, is in the data set.*--ids"):
        match(truth, Names(PICTURES), Names(CAPTIONS), OWN)
    with pytest.raises(DataError, match=r"none of the answers of truth.json, such as 5"):
        match(GroundTruth({"42": ("5",)}, "truth.json"), Names(PICTURES), Names(CAPTIONS), OWN)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{", "cannot read"),
        ("[]", "must hold an object"),
        ('{"1": 2}', "answers of '1' are no list of ids"),
        ('{"1": [2.5]}', "answers of '1'"),
    ],
)
def test_files_that_are_no_ground_truth(tmp_path: Path, text: str, expected: str) -> None:
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(DataError, match=expected):
        read_ground_truth(tmp_path / "x.json")


def test_ratings_that_are_none(tmp_path: Path) -> None:
    file = tmp_path / "x.csv"
    file.write_text("caption,image\n1,2\n")
    with pytest.raises(DataError, match="no column 'agg_score'; found: caption, image"):
        read_ratings(file)
    file.write_text("caption,image,agg_score\n1,2,high\n")
    with pytest.raises(DataError, match="line 2: agg_score 'high' is no number"):
        read_ratings(file)


class TestAnswers:
    """Two classes: queries 0 and 2 share the answers 1 and 4, query 1 has none."""

    made = Answers(np.array([0, 1, 0]), np.array([0, 2, 2]), np.array([1, 4]))

    def test_one_by_one(self) -> None:
        assert len(self.made) == 3
        assert [own.tolist() for own in self.made] == [[1, 4], [], [1, 4]]

    def test_of_some_queries(self) -> None:
        asked = np.array([2, 1, 2])
        assert self.made.counts(asked).tolist() == [2, 0, 2]
        owner, member = self.made.flat(asked)
        assert owner.tolist() == [0, 0, 2, 2] and member.tolist() == [1, 4, 1, 4]
        assert [part.tolist() for part in self.made.flat(np.zeros(0, np.int64))] == [[], []]

    def test_a_caption_without_an_image_links_groups(self) -> None:
        # Caption 2 does not ask, but its text, which is caption 0's, puts image 1 (of its group) among the answers.
        groups, caption_groups, texts = np.array([0, 1]), np.array([0, 1, 1]), np.array([0, 1, 0])
        of_image, of_caption = known_answers(groups, caption_groups, texts, np.array([1, 0]), np.array([0, 1]))
        assert [own.tolist() for own in of_caption] == [[0, 1], [0]]
        assert [own.tolist() for own in of_image] == [[0, 1], [0]]
