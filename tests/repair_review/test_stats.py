"""Precision with Wilson's interval, Cohen's kappa and disagreements, worked out by hand."""

from __future__ import annotations

import json
import math

import pytest
from typer.testing import CliRunner

from repair_ray.cli import app
from repair_ray.config import Config
from repair_ray.repair_review.sample import sample_of
from repair_ray.repair_review.stats import stats_of
from repair_ray.run import Run, RunError
from tests.repair_review.conftest import item_of, say
from tests.test_cli import refuse

Made = tuple[Run, Config]
# valid, matches, scaffold, minimal, contrast.
ANNA = {"f0": "yyyyy", "f1": "ynyyy", "f2": "nyyyy", "f3": "yyy-u", "f4": "yyyyy", "f8": "yyyyy"}
BEN = {"f0": "yyyyy", "f1": "nnyyy", "f2": "nyyyy", "f3": "yyyyu", "f5": "uyyyy"}


def wilson(hits: int, of: int) -> list[float]:
    """Wilson (1927), from the formula."""
    z, share = 1.959963984540054, hits / of
    middle = (share + z * z / (2 * of)) / (1 + z * z / of)
    half = z / (1 + z * z / of) * math.sqrt(share * (1 - share) / of + z * z / (4 * of * of))
    return [round(100 * (middle - half), 3), round(100 * (middle + half), 3)]


@pytest.fixture
def answered(made: Made) -> Run:
    run, _ = made
    sample_of(run, 1)
    say(run, "anna", ANNA)
    say(run, "ben", BEN)
    return run


def test_precision_by_hand(answered: Run) -> None:
    facts = stats_of(answered)
    assert (facts["items"], facts["reviewed"], facts["rounds"], facts["of_other_edits"]) == (10, 7, [1], 0)
    assert facts["annotators"] == {
        "anna": {"reviewed": 6, "in_full": 5, "answers": 29},
        "ben": {"reviewed": 5, "in_full": 5, "answers": 25},
    }
    # valid: f0 yes, f1 split, f2 no, f3 yes, f4 and f8 yes (anna alone), f5 unsure (ben alone).
    valid = facts["total"]["valid"]
    assert {name: valid[name] for name in ("n", "yes", "no", "unsure")} == {"n": 7, "yes": 4, "no": 1, "unsure": 2}
    assert (valid["precision"]["percent"], valid["precision"]["interval"]) == (80.0, wilson(4, 5))
    # matches: all but f1 yes.
    assert facts["total"]["matches"]["precision"] == {
        "hits": 6, "of": 7, "percent": round(600 / 7, 3), "interval": wilson(6, 7),
    }  # fmt: skip
    # By direction: of t2i f2 no, f3 yes.
    assert facts["direction"]["t2i"]["valid"]["precision"]["interval"] == wilson(1, 2)
    assert facts["direction"]["i2t"]["valid"]["precision"]["percent"] == 100.0
    # f8 has two error types and counts under both.
    assert facts["error_type"]["count"]["valid"]["n"] == 1
    assert facts["error_type"]["object"]["valid"]["n"] == 5
    assert facts["error_type"]["count"]["minimal"]["precision"]["interval"] == wilson(1, 1)


def test_agreement_by_hand(answered: Run) -> None:
    facts = stats_of(answered)
    (valid,) = facts["agreement"]["valid"]
    # Both answered f0 (y, y), f1 (y, n), f2 (n, n), f3 (y, y): equal 3 of 4, by chance (3 * 2 + 1 * 2) of 16.
    assert (valid["first"], valid["second"], valid["n"], valid["equal"]["hits"]) == ("anna", "ben", 4, 3)
    assert valid["kappa"] == pytest.approx((3 / 4 - 8 / 16) / (1 - 8 / 16))
    (matches,) = facts["agreement"]["matches"]
    assert matches["kappa"] == 1.0
    (minimal,) = facts["agreement"]["minimal"]
    assert (minimal["n"], minimal["kappa"]) == (3, None), "all in one class, where chance agrees always"
    place = next(row["place"] for row in sample_of(answered, 1) if row["failure_id"] == "f1")
    assert facts["disagreements"] == [
        {
            "item": item_of(answered, "f1"),
            "number": place + 1,
            "failure_id": "f1",
            "round": 1,
            "direction": "i2t",
            "error_types": ["object"],
            "criterion": "valid",
            "said": {"anna": "yes", "ben": "no"},
        }
    ]


def test_only_the_sample_counts(made: Made) -> None:
    run, _ = made
    drawn = {row["failure_id"] for row in sample_of(run, 1, 3)}
    say(run, "anna", dict.fromkeys([f"f{n}" for n in range(10)], "yyyyy"))
    facts = stats_of(run, 1)
    assert (len(drawn), facts["reviewed"], facts["of_other_edits"]) == (3, 3, 7)
    assert facts["agreement"]["valid"] == [] and facts["disagreements"] == []


def test_nobody_has_answered(made: Made) -> None:
    run, _ = made
    for number in (None, 1):
        with pytest.raises(RunError, match=r"nobody has reviewed an edit of .* yet: repair-ray review"):
            stats_of(run, number)
    (run.path("review/answers")).mkdir(parents=True)
    (run.path("review/answers") / "anna.jsonl").write_text('{"item": "x/valid", "label": "perhaps"}\n')
    with pytest.raises(RunError, match=r"anna\.jsonl, line 1: unknown label 'perhaps'; allowed are yes, no, unsure"):
        stats_of(run)


def test_the_command(answered: Run) -> None:
    folder = str(answered.folder)
    ended = CliRunner().invoke(app, ["review", folder, "--stats", "--json"])
    assert json.loads(ended.stdout) == json.loads(json.dumps(stats_of(answered)))
    shown = CliRunner().invoke(app, ["review", folder, "--stats"], env={"COLUMNS": "160"}).stdout
    low, high = wilson(4, 5)
    assert "80.0 of 5" in shown and f"[{low:.1f}, {high:.1f}]" in shown and "2 open" in shown
    assert "anna, ben" in shown and "0.50" in shown and "undefined" in shown and "anna yes, ben no" in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--json"], "--json goes with --stats"),
        (["--stats", "--open"], "--stats tells of all answers"),
        (["--stats", "--annotator", "anna"], "--stats tells of all answers"),
        (["--stats", "--round", "4"], "round 4 of"),
        (["--round", "4"], "has no edits to review yet; rounds that have: 1"),
        (["--annotator", "../anna"], "take letters, digits"),
    ],
)
def test_what_is_refused(made: Made, arguments: list[str], message: str) -> None:
    assert message in refuse("review", str(made[0].folder), *arguments)


def test_no_such_run(made: Made) -> None:
    for more in ([], ["--stats"]):
        assert "there is no run at" in refuse("review", str(made[0].folder / "nowhere"), *more)
    assert not (made[0].folder / "nowhere").exists()
