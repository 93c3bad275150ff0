"""Answers survive kills, cut lines, many writers, and are found again by their question."""

from __future__ import annotations

from pathlib import Path

from repair_ray.engines.answers import FAILED, Answered, AnswerStore


def test_answers_are_found_by_another_process(tmp_path: Path) -> None:
    store = AnswerStore(tmp_path)
    assert store.missing(["a", "b", "a"]) == ["a", "b"]
    answer = Answered("a", "é \n\u2028 {", "ok", None, 2, 3, 4, 0.5)
    store.put(answer)
    store.put(Answered("b", status=FAILED, reason="cut"))
    again = AnswerStore(tmp_path)
    assert again.get("a") == store.get("a") == answer
    assert again.missing(["a", "b", "c"]) == ["c"]


def test_a_cut_line_is_no_answer_and_spoils_no_other(tmp_path: Path) -> None:
    store = AnswerStore(tmp_path)
    store.put(Answered("a", text="1"))
    (path,) = tmp_path.glob("*.jsonl")
    whole = path.read_text()
    path.write_text(whole + whole.replace('"a"', '"b"')[:-10])
    (tmp_path / "other.jsonl").write_text('[1, 2]\n{"unknown": 1}\nnot json\n' + whole.replace('"a"', '"c"'))
    again = AnswerStore(tmp_path)
    assert again.missing(["a", "b", "c"]) == ["b"]


def test_writers_do_not_share_a_file(tmp_path: Path) -> None:
    for number in range(3):
        AnswerStore(tmp_path).put(Answered(str(number), text="x"))
    assert len(list(tmp_path.glob("*.jsonl"))) == 3
    assert AnswerStore(tmp_path).missing(["0", "1", "2"]) == []
