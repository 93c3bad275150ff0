"""Rounds, budgets, cost and the timeline, by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from repair_ray.report.costs import costs, timeline
from repair_ray.report.progression import budget_curve, round_curve
from tests.report.evaluated_run import evaluated_summary, make_evaluated, metrics
from tests.report.test_html_report import report


def test_timeline_lies_where_the_stages_worked() -> None:
    first, second, third = timeline(evaluated_summary())
    assert [(stage["after"], stage["left"], stage["width"]) for stage in (first, second, third)] == [
        (0.0, 0.0, 10.0),
        (10.0, 10.0, 70.0),
        (80.0, 80.0, 20.0),
    ]
    # It worked for 30 of 70 seconds.
    assert [stage["stopped"] for stage in (first, second, third)] == [None, 40.0, None]


def test_stages_of_an_earlier_version_have_no_place() -> None:
    (stage,) = timeline({"stages": [{"name": "a", "seconds": 3.0}]})
    assert (stage["name"], stage["left"], stage["stopped"]) == ("a", None, None)
    assert timeline({}) == []


def test_costs_are_sums() -> None:
    found = costs(evaluated_summary())
    assert found is not None
    assert found["facts"] == [
        ("from begin to end", "1 min 40 s"),
        ("time of all stages", "1 min 00 s"),
        ("GPU time", "1 min 30 s"),
        ("calls of models", "13"),
        ("tokens read", "12,000"),
        ("tokens written", "345"),
        ("cost of models", "0.50"),
        ("pictures edited", "12"),
    ]
    assert [(bar["label"], bar["count"]) for bar in found["kinds"]] == [("training", 50), ("images", 10)]


def test_what_nobody_counted_is_left_out() -> None:
    found = costs({"stages": [{"name": "data/images", "seconds": 2.0}]})
    assert found is not None
    assert [name for name, _ in found["facts"]] == ["time of all stages"]
    assert costs({}) is None


def rounds(*made: dict[str, Any]) -> dict[str, Any]:
    return {"base": {"metrics": metrics(20.0, 30.0)}, "rounds": list(made)}


def test_round_curve_of_three_rounds_of_which_one_was_not_measured() -> None:
    edits = {"edits": {"accepted": {"i2t": 3, "t2i": 4}}, "failures": {"i2t": 9, "t2i": 9}}
    summary = rounds({"metrics": metrics(40.0, 35.0), **edits}, edits, {"metrics": metrics(50.0, 34.0), **edits})
    found = round_curve(summary)
    assert found is not None
    assert "image → caption: 20 at round 0, 40 at round 1, 50 at round 3" in found["svg"]
    assert [line["name"] for line in found["lines"]] == ["base", "round 1", "round 3"]
    assert [line["values"] for line in found["lines"]] == [
        [(20.0, None), (30.0, None)],
        [(40.0, 20.0), (35.0, 5.0)],
        [(50.0, 10.0), (34.0, -1.0)],
    ]
    assert [(line["failures"], line["accepted"]) for line in found["lines"]] == [(None, None), (18, 7), (18, 7)]


def test_a_round_that_was_rolled_back_says_so(tmp_path: Path) -> None:
    edits = {"edits": {"accepted": {"i2t": 3, "t2i": 4}}}
    summary = rounds({"metrics": metrics(40.0, 35.0), **edits}, {"metrics": metrics(30.0, 34.0), **edits})
    summary |= {"name": "back", "result": {"round": 1, "reason": "round 2 is 5.5 points below round 1"}}
    found = round_curve(summary)
    assert found is not None
    assert [line["name"] for line in found["lines"]] == ["base", "round 1", "round 2, rolled back"]
    _, page = report(make_evaluated(tmp_path), summary)
    assert "The run ended with round 1: round 2 is 5.5 points below round 1." in page.text


def test_a_run_that_is_not_measured_has_no_curve() -> None:
    assert round_curve({}) is None and budget_curve({}) is None
    assert round_curve(rounds({})) is None


def test_budget_curve_takes_variants_that_differ_in_the_budget_alone() -> None:
    found = budget_curve(evaluated_summary())
    assert found is not None
    assert [(line["name"], line["pairs"], line["values"]) for line in found["lines"]] == [
        ("base", 0, [50.0, 60.0]),
        ("half", 5, [60.0, 63.0]),
        ("repair", 10, [70.0, 65.0]),
    ]
    assert "caption → image: 60 at pairs 0, 63 at pairs 5, 65 at pairs 10" in found["svg"]


def test_budget_curve_sums_accepted_edits_where_no_training_has_counted() -> None:
    accepted = {"edits": {"accepted": {"i2t": 3, "t2i": 4}}}
    summary = rounds({"metrics": metrics(40.0, 35.0), **accepted}, {"metrics": metrics(45.0, 36.0), **accepted})
    found = budget_curve(summary)
    assert found is not None
    assert [line["pairs"] for line in found["lines"]] == [0, 7, 14]


@pytest.mark.parametrize("corrected", [0, None])
def test_a_strategy_without_pairs_has_no_budget_curve(corrected: int | None) -> None:
    assert budget_curve(rounds({"metrics": metrics(40.0, 35.0), "corrected": corrected})) is None


def test_the_page_tells_all_of_it(tmp_path: Path) -> None:
    _, page = report(make_evaluated(tmp_path), evaluated_summary())
    for words in (
        "base 50.0 60.0 – – round 1 70.0 +20.0 65.0 +5.0 12 10",
        "half 5 60.0 63.0",
        "tokens read 12,000",
        "base/training 10.0 s 30.0 s stood still 40.0 s 6 2.0 6 ok",
        "training 50 83.3 %",
    ):
        assert words in page.text, words
