"""Paired comparison of ranks: known differences, an independent bootstrap, and other queries refused by name."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from repair_ray.evaluation.compare import QueryError, changes, compare


def ranks(i2t: list[int], t2i: list[int]) -> dict[str, dict[str, int]]:
    return {"i2t": {f"i{n}": rank for n, rank in enumerate(i2t)}, "t2i": {f"c{n}": rank for n, rank in enumerate(t2i)}}


def test_differences_by_hand() -> None:
    found = compare(ranks([1, 2, 6, 0], [2, 2]), ranks([1, 1, 1, 0], [1, 4]), resamples=200)
    assert found["i2t"]["n"] == [3] and found["mean"]["n"] == [3, 2]
    assert found["i2t"]["r@1"]["difference"] == pytest.approx(100 * 2 / 3, abs=1e-3)
    assert found["i2t"]["r@5"]["difference"] == pytest.approx(100 / 3, abs=1e-3)
    assert found["i2t"]["mrr"]["difference"] == pytest.approx(100 * (1 / 2 + 5 / 6) / 3, abs=1e-3)
    assert found["t2i"]["r@1"]["difference"] == 50.0
    assert found["mean"]["r@1"]["difference"] == pytest.approx((100 * 2 / 3 + 50) / 2, abs=1e-3)


def test_the_same_ranks_differ_by_nothing() -> None:
    same = ranks([1, 5, 9], [2, 1])
    gain = compare(same, same, resamples=200)["mean"]["r@1"]
    assert gain == {"difference": 0.0, "interval": [0.0, 0.0], "p": 1.0}


def test_interval_and_p_equal_an_independent_bootstrap() -> None:
    rng = np.random.default_rng(0)
    before = rng.integers(1, 12, 400)
    after = np.where(rng.random(400) < 0.12, 1, before)
    found = compare(ranks(before.tolist(), before.tolist()), ranks(after.tolist(), before.tolist()), resamples=4000)
    difference = (after == 1).astype(float) - (before == 1)
    draws = np.array([difference[rng.integers(0, 400, 400)].mean() for _ in range(4000)])
    low, high = 100 * np.quantile(draws, [0.025, 0.975])
    assert found["i2t"]["r@1"]["interval"] == pytest.approx([low, high], abs=0.5)
    assert found["i2t"]["r@1"]["p"] == pytest.approx(2 / 4001, abs=1e-5)
    # Half the difference, and half the width: the other direction adds nothing.
    assert found["mean"]["r@1"]["interval"] == pytest.approx([low / 2, high / 2], abs=0.4)


def test_p_of_a_coin() -> None:
    """Ten queries won and ten lost: no evidence."""
    before, after = [1] * 10 + [2] * 10, [2] * 10 + [1] * 10
    gain = compare(ranks(before, before), ranks(after, before), resamples=1000)["i2t"]["r@1"]
    assert gain["p"] > 0.8 and gain["interval"][0] < 0 < gain["interval"][1]


def test_other_queries_are_refused_by_name() -> None:
    with pytest.raises(QueryError, match=r"a and b have other i2t queries: 1 only in b, such as i2"):
        compare(ranks([1, 2], [1, 2]), ranks([1, 2, 3], [1, 2]), ("a", "b"))
    with pytest.raises(QueryError, match=r"other t2i queries with a positive: 1 only in a, such as c1"):
        compare(ranks([1, 2], [1, 2, 3]), ranks([1, 2], [1, 0, 3]), ("a", "b"))
    with pytest.raises(QueryError, match="0 i2t queries have a positive"):
        compare(ranks([0, 0], [1, 2]), ranks([0, 0], [1, 2]))


class TestChanges:
    def test_by_hand(self) -> None:
        before, after = [1, 1, 2, 3, 9, 0], [1, 2, 1, 1, 4, 0]
        found = changes(ranks(before, [2, 2]), ranks(after, [2, 2]))
        # Fixed 2, broken 1 of 3 that changed: P(1 or fewer, or 2 or more, of 3 fair coins) = 1.
        counts = {"right_in_both": 1, "fixed": 2, "broken": 1, "wrong_in_both": 1, "p": 1.0}
        assert found["i2t"] == counts
        assert found["t2i"] == {"right_in_both": 0, "fixed": 0, "broken": 0, "wrong_in_both": 2, "p": 1.0}

    def test_mcnemar_of_a_known_table(self) -> None:
        # 9 fixed and 1 broken: (1 + 10) heads at most of 10 coins, on both sides: 2 * 11 / 1024.
        before, after = [2] * 9 + [1] + [1] * 30, [1] * 9 + [2] + [1] * 30
        same = [1] * 40
        found = changes(ranks(before, same), ranks(after, same))["i2t"]
        assert (found["fixed"], found["broken"], found["right_in_both"]) == (9, 1, 30)
        assert found["p"] == pytest.approx(22 / 1024)
        reverse = changes(ranks(after, same), ranks(before, same))["i2t"]
        assert (reverse["fixed"], reverse["broken"], reverse["p"]) == (1, 9, found["p"])

    def test_many_queries_agree_with_the_chi_square_form(self) -> None:
        before, after = [2] * 700 + [1] * 600 + [1] * 500, [1] * 700 + [2] * 600 + [1] * 500
        found = changes(ranks(before, before), ranks(after, after))["t2i"]
        corrected = (abs(700 - 600) - 1) ** 2 / (700 + 600)
        assert found["p"] == pytest.approx(stats.chi2.sf(corrected, 1), rel=0.02)
        # And with the tail written out.
        tail = sum(math.comb(1300, k) for k in range(601)) / 2**1300
        assert found["p"] == pytest.approx(2 * tail, rel=1e-9)

    def test_other_queries_are_refused(self) -> None:
        with pytest.raises(QueryError, match="1 only in old, such as i2"):
            changes(ranks([1, 2, 3], [1, 1]), ranks([1, 2], [1, 1]), ("old", "new"))
