"""Paired comparison of ranks: known differences, an independent bootstrap, and other queries refused by name."""

from __future__ import annotations

import numpy as np
import pytest

from repair_ray.evaluation.compare import QueryError, compare


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
