"""What verifiers say together: the decision, and Cohen's kappa by hand."""

from __future__ import annotations

import pytest

from repair_ray.data.records import DataError
from repair_ray.evaluation.votes import between_verifiers, check_same_sheet, decide, decide_all


@pytest.mark.parametrize(
    ("votes", "majority", "unanimous"),
    [
        (["yes"], "yes", "yes"),
        (["no", "no"], "no", "no"),
        (["yes", "no"], "unsure", "unsure"),
        (["yes", "yes", "no"], "yes", "unsure"),
        (["no", "no", "yes"], "no", "unsure"),
        (["yes", "unsure"], "unsure", "unsure"),
        (["yes", "yes", "unsure"], "yes", "unsure"),
        (["yes", "no", "unsure"], "unsure", "unsure"),
        (["unsure", "unsure", "yes"], "unsure", "unsure"),
        ([], "unsure", "unsure"),
    ],
)
def test_decisions(votes: list[str], majority: str, unanimous: str) -> None:
    assert (decide(votes), decide(votes, "unanimous")) == (majority, unanimous)


def test_peoples_word_stands_above_a_machines() -> None:
    people = {"people/ben": {"p": "no", "q": "yes"}, "people/anna": {"p": "no"}}
    machines = {"m": {"p": "yes", "r": "yes"}, "n": {"r": "no"}}
    assert decide_all(people, machines) == {
        "p": ("no", ["people/anna: no", "people/ben: no"]),
        "q": ("yes", ["people/ben: yes"]),
        "r": ("unsure", ["m: yes", "n: no"]),
    }


def test_kappa_by_hand() -> None:
    # Ten pairs in common: yes/yes 4, no/no 3, yes/no 1, no/yes 1, unsure/no 1.
    words = [("yes", "yes")] * 4 + [("no", "no")] * 3 + [("yes", "no"), ("no", "yes"), ("unsure", "no")]
    first = {f"p{n}": a for n, (a, _) in enumerate(words)} | {"alone": "yes"}
    second = {f"p{n}": b for n, (_, b) in enumerate(words)}
    (found,) = between_verifiers({"b": second, "a": first, "c": {"other": "no"}})
    assert (found["first"], found["second"], found["n"]) == ("a", "b", 10)
    # Chance: yes 5*5, no 4*5, unsure 1*0 of 100.
    assert found["kappa"] == pytest.approx((0.7 - 0.45) / (1 - 0.45), abs=1e-4)
    # Without the unsure pair: yes 5*5, no 4*4 of 81; 7 of 9 equal.
    assert found["kappa_decided"] == pytest.approx((7 / 9 - 41 / 81) / (1 - 41 / 81), abs=1e-4)
    assert found["equal"]["hits"] == 7 and found["confusion"]["unsure"] == {"yes": 0, "no": 1, "unsure": 0}


def test_kappa_of_one_word_is_undefined() -> None:
    (found,) = between_verifiers({"a": {"p": "no", "q": "no"}, "b": {"p": "no", "q": "no"}})
    assert found["kappa"] is None and found["kappa_decided"] is None and found["equal"]["percent"] == 100.0


@pytest.mark.parametrize(
    ("own", "message"),
    [
        ({"p"}, r"ben is of another sheet .* 0 of its 1 pairs are not in it, and 1 of the sheet's 2 are lacking, .* q"),
        ({"p", "q", "x"}, r"1 of its 3 pairs are not in it, and 0 .*such as x"),
    ],
)
def test_another_sheet_is_refused(own: set[str], message: str) -> None:
    with pytest.raises(DataError, match=message):
        check_same_sheet({"anna": {"p", "q"}, "ben": own}, {"p", "q"})
