"""What people refused is left out of training, and what was trained with it is made anew."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from repair_ray import tables
from repair_ray.config import Config, ConfigError, ReviewConfig, parse_config
from repair_ray.export.pairs import hard_pairs
from repair_ray.repair_review.refusals import Refusals
from repair_ray.run import Recipe, Run
from repair_ray.synthesis.training_set import training_set
from tests.export.made_run import CONFIG
from tests.repair_review.conftest import say

Made = tuple[Run, Config]
EDITS, REVIEWED = "round-1/edits", "round-1/edits_reviewed"


def settle(run: Run, **review: Any) -> str:
    return Refusals.read(run, ReviewConfig(**review)).settle(run, EDITS, "round-1/training")


def refused(run: Run, **review: Any) -> dict[str, str]:
    product = settle(run, **review)
    rows = run.read(product).to_pylist()
    return {row["failure_id"]: row["reason"] for row in rows if row["status"] == tables.REFUSED}


def train(run: Run, edits: str) -> None:
    """A training product, and what hangs on it."""
    for product, parents in (
        ("round-1/embeddings", ("data/images",)),
        ("round-1/training", (edits,)),
        ("round-1/metrics", ("round-1/training",)),
    ):
        recipe = Recipe({}, parents)
        if not run.ready(product, recipe):
            run.finish(product, recipe, 0.0)


def made_products(run: Run) -> set[str]:
    return {name.removeprefix("round-1/") for name, _ in run.products() if name.startswith("round-1/")}


@pytest.fixture
def answered(made: Made) -> Run:
    run, _ = made
    # valid, matches, scaffold, minimal, contrast.
    say(run, "anna", {"f0": "nyyyy", "f1": "yynyy", "f2": "yyyyy", "f3": "unyyy"})
    say(run, "ben", {"f0": "nyyyy", "f1": "yyyyy", "f2": "yyyyy", "f3": "yyyny"})
    say(run, "cyd", {"f0": "yyyyy", "f2": "uuuuu", "f5": "yyyyn"})
    return run


def test_any_and_majority_by_hand(answered: Run) -> None:
    reason = "refused in review: {}".format
    assert refused(answered, exclude="any") == {
        "f0": reason("valid"),
        "f1": reason("scaffold"),
        "f3": reason("matches"),
        "f5": reason("contrast"),
    }
    # f1: one of two says no to the scaffold, which is no more than half.
    assert refused(answered, exclude="majority") == {"f0": reason("valid"), "f5": reason("contrast")}
    assert refused(answered, exclude="any", criteria=("minimal",)) == {"f3": reason("minimal")}
    assert settle(answered, exclude="no") == EDITS
    assert answered.manifest(REVIEWED) is None


def test_rows_stay_and_are_counted(answered: Run) -> None:
    settle(answered, exclude="any")
    manifest = answered.manifest(REVIEWED) or {}
    assert manifest["rows"] == 12
    assert manifest["statuses"] == {"ok": 7, "refused": 4, "rejected": 1}
    assert manifest["reasons"]["refused in review: valid"] == 1
    assert manifest["refused"] == {"valid": 1, "scaffold": 1, "matches": 1, "contrast": 1}
    before, after = (
        {row["failure_id"]: row for row in answered.read(product).to_pylist()} for product in (EDITS, REVIEWED)
    )
    changed = {"f0", "f1", "f3", "f5"}
    assert {name for name in before if before[name] != after[name]} == changed
    assert all(before[name] == {**after[name], "status": "ok", "reason": None} for name in changed)


def test_training_has_neither_the_edit_nor_its_failure(answered: Run) -> None:
    def pairs(product: str) -> Counter[tuple[str, bool]]:
        _, found = training_set(answered, ("train",), (product,))
        return Counter((pair.direction, pair.fallback) for pair in found.corrected)

    # 8 + 2 edits and the paired counterpart; the rejected edit brings a fallback.
    assert pairs(EDITS) == {("i2t", False): 9, ("t2i", False): 2, ("i2t", True): 1}
    # Without f0, f1, f5 and f3, and none of them as a fallback: its false positive may be right.
    assert pairs(settle(answered, exclude="any")) == {("i2t", False): 6, ("t2i", False): 1, ("i2t", True): 1}
    texts = training_set(answered, ("train",), (REVIEWED,))[0].texts
    assert texts.count("a red\tdot, not green") == 5


def test_exports_are_without_them(answered: Run, made: Made) -> None:
    def exported() -> set[str]:
        return {pair.pair_id for pair in hard_pairs(answered, made[1], "round-1")}

    everything = exported()
    settle(answered, exclude="any")
    assert everything - exported() == {"f0", "f1", "f3", "f5"}


def test_what_depends_on_it_is_made_anew_and_nothing_else(made: Made) -> None:
    run, _ = made
    assert settle(run, exclude="any") == EDITS, "nobody has refused anything"
    train(run, EDITS)
    everything = made_products(run)
    say(run, "anna", {"f2": "yyyyy"})
    assert settle(run, exclude="any") == EDITS and made_products(run) == everything
    # One is refused: the training with it goes, with what hangs on it.
    say(run, "anna", {"f0": "nyyyy"})
    assert settle(run, exclude="any") == REVIEWED
    assert everything - made_products(run) == {"training", "metrics"}
    train(run, REVIEWED)
    first = (run.manifest("round-1/training") or {})["fingerprint"]
    # Asked again, and said again in other words: all stays.
    say(run, "ben", {"f0": "nyyyy", "f1": "yyyyy"})
    assert settle(run, exclude="any") == settle(run, exclude="majority") == REVIEWED
    assert made_products(run) == everything | {"edits_reviewed"}
    # Another is refused.
    say(run, "ben", {"f1": "nyyyy"})
    assert settle(run, exclude="any") == REVIEWED
    assert made_products(run) == (everything | {"edits_reviewed"}) - {"training", "metrics"}
    train(run, REVIEWED)
    assert (run.manifest("round-1/training") or {})["fingerprint"] != first
    # People take it all back, or nobody is listened to any more.
    assert settle(run, exclude="no") == EDITS
    assert made_products(run) == everything - {"training", "metrics"}


def test_a_half_made_training_starts_anew_too(made: Made) -> None:
    run, _ = made
    run.ready("round-1/training", Recipe({}, (EDITS,)))
    say(run, "anna", {"f0": "nyyyy"})
    assert settle(run, exclude="any") == REVIEWED
    assert run.parents("round-1/training") is None
    assert not run.ready("round-1/training", Recipe({}, (REVIEWED,)))


def test_who_answers_while_the_run_works_is_heard_the_next_time(made: Made) -> None:
    run, _ = made
    say(run, "anna", {"f0": "nyyyy"})
    heard = Refusals.read(run, ReviewConfig(exclude="any"))
    assert heard.settle(run, EDITS) == REVIEWED
    say(run, "anna", {"f1": "nyyyy"})
    heard.settle(run, EDITS)
    assert (run.manifest(REVIEWED) or {})["refused"] == {"valid": 1}
    settle(run, exclude="any")
    assert (run.manifest(REVIEWED) or {})["refused"] == {"valid": 2}


def test_edits_made_anew_are_not_refused(made: Made) -> None:
    run, _ = made
    say(run, "anna", {"f0": "nyyyy"})
    settle(run, exclude="any")
    table = run.read(EDITS)
    assert REVIEWED in run.redo("edits")
    run.ready(EDITS, Recipe({"model": "another"}))
    run.commit(EDITS, Recipe({"model": "another"}), tables.EDITS, table, 0.0)
    assert settle(run, exclude="any") == EDITS


@pytest.mark.parametrize(
    ("review", "message"),
    [
        ({"exclude": "some"}, "review.exclude='some'"),
        ({"criteria": ["true"]}, "review.criteria.0='true'"),
        ({"criteria": []}, r"review.criteria=\[\]"),
        ({"refuse": True}, "unknown key 'review.refuse'|unknown key 'refuse'"),
    ],
)
def test_wrong_settings(review: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_config({**CONFIG, "review": review})


def test_no_is_no_in_yaml() -> None:
    assert parse_config({**CONFIG, "review": {"exclude": False}}).review.exclude == "no"
