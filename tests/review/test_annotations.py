"""Annotations: on the disk at once, the last word wins, a cut line costs itself alone."""

from __future__ import annotations

import json
import resource
from pathlib import Path

import pytest

from repair_ray.review.annotations import Annotations, put_all, read_all, read_annotations
from repair_ray.run import RunError

WORDS = ("yes", "no", "unsure")


def test_each_label_is_a_line_at_once_and_the_last_wins(tmp_path: Path) -> None:
    with Annotations(tmp_path, "anna", WORDS) as own:
        own.put("p", "yes")
        assert read_annotations(tmp_path / "anna.jsonl", WORDS) == {"p": "yes"}
        own.put("q", "no")
        own.put("p", "unsure")
        assert own.labels == {"p": "unsure", "q": "no"}
    rows = [json.loads(line) for line in (tmp_path / "anna.jsonl").read_text().splitlines()]
    assert [(row["item"], row["label"]) for row in rows] == [("p", "yes"), ("q", "no"), ("p", "unsure")]
    with Annotations(tmp_path, "anna", WORDS) as again:
        assert again.labels == {"p": "unsure", "q": "no"}


@pytest.mark.parametrize("cut", [1, 9, 25, 40])
def test_a_line_that_a_crash_has_cut_is_left_out_and_the_next_is_whole(tmp_path: Path, cut: int) -> None:
    with Annotations(tmp_path, "anna", WORDS) as own:
        own.put("p", "yes")
    whole = (tmp_path / "anna.jsonl").read_bytes()
    line = json.dumps({"item": "q", "label": "no", "at": 1234567890.123})
    (tmp_path / "anna.jsonl").write_bytes(whole + line[:cut].encode())
    with Annotations(tmp_path, "anna", WORDS) as own:
        assert own.labels == {"p": "yes"}
        own.put("q", "unsure")
    assert read_all(tmp_path, WORDS) == {"anna": {"p": "yes", "q": "unsure"}}


def test_two_annotators_at_once_and_one_only_once(tmp_path: Path) -> None:
    with Annotations(tmp_path, "anna", WORDS) as anna, Annotations(tmp_path, "ben", WORDS) as ben:
        anna.put("p", "yes")
        ben.put("p", "no")
        with pytest.raises(RunError, match="somebody labels as anna already"):
            Annotations(tmp_path, "anna", WORDS)
    assert read_all(tmp_path, WORDS) == {"anna": {"p": "yes"}, "ben": {"p": "no"}}


def test_a_disk_that_is_full_costs_the_label_that_did_not_fit(tmp_path: Path) -> None:
    with Annotations(tmp_path, "anna", WORDS) as own:
        own.put("p", "yes")
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, ((tmp_path / "anna.jsonl").stat().st_size + 10, hard))
        try:
            for _ in range(2):
                with pytest.raises(OSError):
                    own.put("p", "no")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert own.labels == {"p": "yes"}
        own.put("q", "unsure")
    assert read_all(tmp_path, WORDS) == {"anna": {"p": "yes", "q": "unsure"}}


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".anna", "-a", "ann a", "x" * 65, "ä"])
def test_a_name_is_no_path(tmp_path: Path, name: str) -> None:
    with pytest.raises(RunError, match="take letters, digits"):
        Annotations(tmp_path / "inside", name, WORDS)
    assert not list(tmp_path.rglob("*.jsonl"))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            '{"item": "p", "label": "maybe"}\n',
            r"anna\.jsonl, line 1: unknown label 'maybe'; allowed are yes, no, unsure",
        ),
        ('{"item": "p"}\n', r"anna\.jsonl, line 1: not a label of an item"),
    ],
)
def test_faults(tmp_path: Path, line: str, message: str) -> None:
    (tmp_path / "anna.jsonl").write_text(line)
    with pytest.raises(RunError, match=message):
        read_all(tmp_path, WORDS)
    (tmp_path / "anna.jsonl").unlink()
    with Annotations(tmp_path, "anna", WORDS) as own, pytest.raises(ValueError, match="unknown label 'maybe'"):
        own.put("p", "maybe")


def test_only_what_is_new_is_taken_in(tmp_path: Path) -> None:
    said = {"anna": {"p": "yes", "q": "no"}}
    assert put_all(tmp_path, said, WORDS) == 2
    assert put_all(tmp_path, {"anna": {"p": "yes", "q": "unsure"}, "ben": {"p": "no"}}, WORDS) == 2
    assert read_all(tmp_path, WORDS) == {"anna": {"p": "yes", "q": "unsure"}, "ben": {"p": "no"}}
    # Nobody's: a file that is no annotator's, and one without a label.
    (tmp_path / "no name.jsonl").write_text("{}\n")
    (tmp_path / "cyd.jsonl").write_text("")
    assert set(read_all(tmp_path, WORDS)) == {"anna", "ben"}
