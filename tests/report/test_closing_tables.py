from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console
from rich.table import Table

from repair_ray.report import results
from repair_ray.report.console import ProgressView, closing_tables


def direction(r1: float) -> dict[str, Any]:
    return {"r@1": r1, "r@5": r1 + 10, "r@10": r1 + 20, "mrr": r1 + 5, "r@1_ci": [r1 - 2, r1 + 2], "n": 100}


def metrics(i2t: float, t2i: float) -> dict[str, Any]:
    return {"i2t": direction(i2t), "t2i": direction(t2i)}


SUMMARY: dict[str, Any] = {
    "name": "small",
    "strategy": "repair",
    "base": {"metrics": metrics(50.0, 48.0)},
    "controls": {"vanilla_equal_compute": {"metrics": metrics(55.5, 47.0), "items": 123_456}},
    "rounds": [
        {
            "metrics": metrics(60.25, 58.0),
            "truth": {"audit_precision": 96.5, "edit_validity": {"i2t": 93.0, "t2i": None}, "audited": 1200},
        }
    ],
    "training": {
        "base/training": {"items_encoded": 1000},
        "folds/0/training": {"items_encoded": 7},
        "round-1/training": {"items_encoded": 120_000},
        "controls/vanilla_equal_compute/training": {"items_encoded": 123_456},
    },
    "language": {
        "products": {
            "round-1/verdicts_answers": {
                "model": "judge-[8b]",
                "questions": 3,
                "calls": 4,
                "input_tokens": 12_345,
                "output_tokens": 67,
                "seconds": 6.0,
                "cost": 0.0,
            }
        },
        "calls_per_pair": 2.0,
    },
    "stages": [
        {
            "name": "data/images",
            "seconds": 2.0,
            "rows": 10,
            "rows_per_second": 5.0,
            "statuses": {"ok": 7, "error": 3},
            "reasons": {"truncated [bold]x[/bold]\x1b[2J": 2, "html": 1},
        },
        {
            "name": "round-1/failures",
            "seconds": 1.0,
            "rows": 9,
            "rows_per_second": 9.0,
            "statuses": {"ok": 5, "no_failure": 4},
            "reasons": {"no false positive": 4},
        },
    ],
    "evaluation": {
        "split": "test",
        "images": 1000,
        "captions": 5010,
        "captions_per_image": {"min": 5, "mean": 5.01, "max": 7},
        "split_hash": "0123456789abcdef",
        "ties": "pessimistic",
        "model": "tiny-64",
        "precision": "fp32",
        "scores": "float32",
    },
}


def printed(*items: Table, width: int = 130) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    for item in items:
        console.print(item)
    return str(console.file.getvalue())  # type: ignore[attr-defined]


def lines_with(text: str, *words: str) -> list[str]:
    return [line for line in text.splitlines() if all(word in line for word in words)]


def test_metrics_hold_every_retriever_with_differences_and_compute() -> None:
    i2t, t2i = (printed(table, width=80) for table in closing_tables(SUMMARY)[:2])
    assert i2t.lstrip().startswith("image → caption on test, in percent")
    (base,) = lines_with(i2t, "base", "50.0")
    assert base.split() == ["base", "50.0", "48.0–52.0", "–", "60.0", "70.0", "55.0", "1,000"]
    (control,) = lines_with(i2t, "vanilla, equal compute")
    assert control.split()[-5:] == ["+5.5", "65.5", "75.5", "60.5", "123,456"]
    (repair,) = lines_with(i2t, "repair")
    assert repair.split()[1:4] == ["60.2", "58.2–62.2", "+10.2"]
    assert "120,000" in repair
    (worse,) = lines_with(t2i, "vanilla, equal compute")
    assert "−1.0" in worse


def test_metrics_say_what_they_were_measured_on() -> None:
    said = results.protocol_text(SUMMARY["evaluation"])
    assert said == (
        "1,000 images, 5,010 captions. Captions an image: 5 to 7, mean 5.01. Split hash 0123456789abcdef. "
        "Ties: pessimistic. Model tiny-64 in fp32. Scores in float32."
    )
    assert said in " ".join(printed(*closing_tables(SUMMARY)).split())
    assert results.protocol_text({"split": "test"}) == ""


def test_stages_truth_and_bad_rows_are_listed() -> None:
    text = printed(*closing_tables(SUMMARY))
    (images,) = lines_with(text, "data/images", "5.0")
    assert images.split() == ["data/images", "10", "2.0", "5.0", "7", "0", "3", "0"]
    assert lines_with(text, "audit precision", "96.5 %")
    assert lines_with(text, "audited", "1,200")
    assert lines_with(text, "edit validity, caption → image", "–")
    assert lines_with(text, "data/images", "error", "html", "1")
    assert "no false positive" not in text


def test_an_approximate_search_says_what_it_finds() -> None:
    said = "round-1/failures was mined by an approximate search, which finds of the exact neighbours"
    assert said not in " ".join(printed(*closing_tables(SUMMARY)).split())
    found = {**SUMMARY, "approximate_search": {"round-1/failures": {"i2t": 0.9713, "t2i": 1.0}}}
    text = " ".join(printed(*closing_tables(found)).split())
    assert f"{said}: image → caption 97.1 %, caption → image 100.0 %." in text


def test_calls_of_models_are_listed() -> None:
    text = printed(*closing_tables(SUMMARY))
    (judge,) = lines_with(text, "judge-[8b]")
    assert judge.split() == ["round-1/verdicts", "judge-[8b]", "3", "4", "12,345", "67", "1.50", "–"]
    assert lines_with(text, "2.00 calls for each accepted edit")


def test_outside_text_cannot_steer_the_terminal() -> None:
    text = printed(*closing_tables(SUMMARY))
    assert "truncated [bold]x[/bold]·[2J" in text
    assert "\x1b" not in text


def test_absent_parts_leave_their_table_out() -> None:
    assert closing_tables({}) == []
    only = closing_tables({"base": {"metrics": metrics(1.0, 2.0)}, "rounds": [], "controls": {}})
    assert len(only) == 2
    assert lines_with(printed(only[0]), "base", "1.0")


def test_rounds_are_numbered_when_there_are_several() -> None:
    summary = {"strategy": "repair", "rounds": [{"metrics": metrics(1, 1), "items": 8}, {"metrics": metrics(2, 2)}]}
    first, second = results.systems(summary)
    assert (first.label, first.items, second.label, second.items) == ("repair, round 1", 8, "repair, round 2", None)
    assert results.outcome([first, second]) == (None, second)


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0.04, "0.0 s"), (59.9, "59.9 s"), (185.0, "3 min 05 s"), (7800.0, "2 h 10 min")]
)
def test_durations(seconds: float, shown: str) -> None:
    assert results.duration(seconds) == shown


def test_progress_without_a_terminal_prints_starts_and_ends_once() -> None:
    console = Console(file=io.StringIO(), force_terminal=False, width=40)
    with ProgressView(console) as view:
        view("data/images", 0, 10)
        view("data/images", 10, 10)
        view("data/images", 10, 10)
        view("base", 0, 400)
        view("base", 120, 400)
        view("round-1/edits", 0, 0)
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert [line.split(":")[0] for line in lines] == [
        *("data/images starts", "data/images done", "base starts", "base done"),
        *("round-1/edits starts", "round-1/edits done"),
    ]
    assert "10/10" in lines[1]
    assert "120/400" in lines[3]


def test_progress_on_a_terminal_keeps_ticks_and_marks_what_stopped() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=100, color_system=None)

    def stops() -> None:
        with ProgressView(console) as view:
            view("data/images", 0, 1000)
            view("data/images", 1000, 1000)
            view("base [x]", 3, 1000)
            raise KeyError("boom")

    with pytest.raises(KeyError):
        stops()
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert lines_with(text, "✔ data/images", "1,000/1,000")
    assert lines_with(text, "✘ base [x]", "3/1,000")
