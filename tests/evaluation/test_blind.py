"""The blind reader finds what gives edits away, and nothing where there is nothing."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import pytest

from repair_ray.evaluation import blind
from repair_ray.evaluation.blind import BlindError, Pair, blind_baseline

COLOURS = ["red", "blue", "green", "pink", "black"]
THINGS = ["dog", "cat", "car", "boat", "man", "tree"]


def pairs(n: int, edited: str = "{}", *, images: int = 0, seed: int = 0) -> list[Pair]:
    """Random captions; `edited` is what becomes of those on the edited side."""
    rng = random.Random(seed)

    def caption() -> str:
        return f"a {rng.choice(COLOURS)} {rng.choice(THINGS)} near a {rng.choice(COLOURS)} {rng.choice(THINGS)}"

    made = []
    for _ in range(n):
        query, owner = (f"image {rng.randrange(images or 3 * n)}" for _ in range(2))
        made.append(Pair(edited.format(caption()), caption(), frozenset({query, owner}), query))
    return made


def test_a_word_that_gives_edits_away() -> None:
    found = blind_baseline(pairs(120, "{} indeed"))
    assert found["accuracy"]["percent"] > 95 and found["auc"] > 0.95
    assert found["more_words"] == 1.0
    assert "indeed" in found["telling"]["edited"][0]["text"]
    assert (found["telling"]["edited"][0]["pairs"], found["telling"]["edited"][0]["pairs_other"]) == (120, 0)
    json.dumps(found, allow_nan=False)


@pytest.mark.parametrize("edited", ["{}.", "{} "])
def test_a_mark_at_the_end_gives_edits_away(edited: str) -> None:
    found = blind_baseline(pairs(120, edited))
    assert found["accuracy"]["percent"] > 95 and found["more_words"] == 0


def test_what_is_random_stays_at_chance() -> None:
    found = blind_baseline(pairs(300, seed=5))
    low, high = found["accuracy"]["interval"]
    assert low < 50 < high and 0.4 < found["auc"] < 0.6


def test_no_picture_is_on_both_sides() -> None:
    given = pairs(200, images=300)
    folds = blind._folds(given, np.random.default_rng(0))
    assert sorted(i for _, test in folds for i in test) == list(range(200))
    for train, test in folds:
        assert not {g for i in train for g in given[i].groups} & {g for i in test for g in given[i].groups}


def test_sources_that_always_come_again_cannot_be_remembered() -> None:
    """Four captions are the sources of all pairs: who has seen them would know them, so no pair is left."""
    made = [
        Pair(pair.edited, f"source {n % 4}", frozenset({f"q{n // 15}", f"owner {n % 4}"}), f"q{n // 15}")
        for n, pair in enumerate(pairs(300))
    ]
    with pytest.raises(BlindError, match="a fold of 30 pairs shares pictures with all but 0 of the 300"):
        blind_baseline(made)


def test_the_seed_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    given = pairs(90, seed=7)
    assert blind_baseline(given, seed=1) == blind_baseline(given, seed=1)
    monkeypatch.setattr(blind, "MAX_PAIRS", 60)
    drawn: list[Any] = [blind_baseline(given, seed=seed) for seed in (1, 2)]
    assert [found["pairs"] for found in drawn] == [60, 60] and drawn[0] != drawn[1]


def test_equal_texts_are_a_coin() -> None:
    """A difference that no other pair shares has no weight."""
    same = [Pair("a dog", "a dog", frozenset({f"q{n}"}), f"q{n}") for n in range(400)]
    found = blind_baseline(same)
    assert found["ties"] == 400 and found["auc"] == 0.5
    assert found["accuracy"]["interval"][0] < 50 < found["accuracy"]["interval"][1]
    assert found["telling"] == {"edited": [], "source": []}


def test_too_few_pairs() -> None:
    with pytest.raises(BlindError, match="49 pairs are too few to tell anything; at least 50"):
        blind_baseline(pairs(49))
