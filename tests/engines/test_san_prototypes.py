"""Prototypes and confusable words, against values by hand and a plain computation."""

from __future__ import annotations

import numpy as np
import pytest

from repair_ray.engines.san.prototypes import PrototypeSums, confusable, listed_words, random_words, reaches
from repair_ray.engines.words import Key

KEYS: list[Key] = [("dog", "noun"), ("wolf", "noun"), ("cat", "noun"), ("run", "verb")]


def unit(*rows: tuple[float, ...]) -> np.ndarray:
    made = np.array(rows, np.float32)
    return made / np.linalg.norm(made, axis=-1, keepdims=True)


def test_a_prototype_is_the_normalised_mean_of_its_matches() -> None:
    words = unit((1, 0), (0, 1))
    sums = PrototypeSums(2, 2)
    tokens = unit((1, 0), (0.8, 0.6), (0, 1))
    assert sums.add(words, tokens, [0], alpha=0.7) == 2  # the cosines are 1, 0.8 and 0
    assert sums.matches.tolist() == [2, 0]
    assert sums.best.tolist() == [1.0, -np.inf]
    mean = np.array([0.9, 0.3])
    np.testing.assert_allclose(sums.vectors()[0], mean / np.linalg.norm(mean), atol=1e-6)
    assert sums.vectors()[1].tolist() == [0, 0], "a word that no item holds has no prototype"


@pytest.mark.parametrize(("alpha", "matches"), [(0.8, 1), (0.801, 0), (-1.0, 1), (1.0, 0)])
def test_alpha_counts_a_cosine_that_is_just_as_high(alpha: float, matches: int) -> None:
    sums = PrototypeSums(1, 2)
    sums.add(unit((1, 0)), unit((0.8, 0.6)), [0], alpha)
    assert sums.matches.tolist() == [matches]
    assert sums.best[0] == pytest.approx(0.8), "the best cosine tells which alpha would have matched"


def test_equal_vectors_reach_one_in_spite_of_rounding() -> None:
    vector = unit((0.3, 0.7, 0.1, 0.9, 0.2))
    assert reaches(vector @ vector.T * np.float32(1 - 2e-7), 1.0).all()


def test_a_word_held_twice_or_an_item_without_words_or_tokens() -> None:
    once, twice = PrototypeSums(1, 2), PrototypeSums(1, 2)
    once.add(unit((1, 0)), unit((1, 0)), [0], 0.5)
    twice.add(unit((1, 0)), unit((1, 0)), [0, 0], 0.5)
    assert (once.sums == twice.sums).all() and twice.matches.tolist() == [1]
    assert twice.add(unit((1, 0)), unit((1, 0)), [], 0.5) == 0
    assert twice.add(unit((1, 0)), np.zeros((0, 2), np.float32), [0], 0.5) == 0


def test_parts_merge_to_the_last_bit_in_any_order_and_batching() -> None:
    draw = np.random.default_rng(0)
    words = unit(*draw.normal(size=(6, 16)))
    items = [(unit(*draw.normal(size=(9, 16))), draw.choice(6, 3, replace=False).tolist()) for _ in range(40)]

    def summed(parts: list[list[int]]) -> PrototypeSums:
        whole = PrototypeSums(6, 16)
        for part in parts:
            mine = PrototypeSums(6, 16)
            for n in part:
                mine.add(words, *items[n], alpha=0.1)
            whole.merge(mine)
        return whole

    one, other = summed([list(range(40))]), summed([[n] for n in reversed(range(40))])
    assert (one.sums == other.sums).all() and (one.vectors() == other.vectors()).all()
    assert (one.matches == other.matches).all() and (one.best == other.best).all()
    plain = np.zeros((6, 16))
    for tokens, held in items:
        for word in held:
            for token in tokens:
                plain[word] += token if float(words[word] @ token) >= 0.1 else 0
    np.testing.assert_allclose(one.vectors(), plain / np.linalg.norm(plain, axis=1, keepdims=True), atol=1e-5)


def test_a_part_with_other_words_merges_by_their_places() -> None:
    whole, part = PrototypeSums(3, 2), PrototypeSums(2, 2)
    part.add(unit((1, 0), (0, 1)), unit((0, 1)), [0, 1], 0.5)
    whole.merge(part, [2, 0])
    assert whole.matches.tolist() == [1, 0, 0]
    assert whole.best.tolist() == [1.0, -np.inf, 0.0]


def test_confusable_words_are_near_of_one_kind_and_other_lemmas() -> None:
    vectors = unit((1, 0), (0.8, 0.6), (0.9, 0.1), (1, 0))
    found = confusable(vectors, KEYS, np.ones(4, bool), beta=0.8, nearest=5)
    assert [(pair.word, pair.other) for pair in found] == [(0, 2), (0, 1), (1, 2), (1, 0), (2, 0), (2, 1)]
    assert found[1].cosine == pytest.approx(0.8)
    assert all(3 not in (pair.word, pair.other) for pair in found), "the verb looks like the dog, and is a verb"


@pytest.mark.parametrize(("beta", "pairs"), [(0.8, 2), (0.8001, 0), (-1.0, 2)])
def test_beta_counts_a_cosine_that_is_just_as_high(beta: float, pairs: int) -> None:
    vectors = unit((1, 0), (0.8, 0.6))
    assert len(confusable(vectors, KEYS[:2], np.ones(2, bool), beta=beta, nearest=5)) == pairs


def test_a_word_without_a_match_is_like_none() -> None:
    vectors = np.array([[1, 0], [0, 0], [1, 0]], np.float32)
    found = confusable(vectors, KEYS[:3], np.array([True, False, True]), beta=-1.0, nearest=5)
    assert [(pair.word, pair.other) for pair in found] == [(0, 2), (2, 0)]
    assert confusable(vectors, KEYS[:3], np.zeros(3, bool), beta=-1.0, nearest=5) == []


def test_ties_come_in_order_and_only_the_nearest_stay() -> None:
    keys: list[Key] = [(f"w{n}", "noun") for n in range(5)]
    vectors = unit(*[(1.0, 0.0)] * 5)
    found = confusable(vectors, keys, np.ones(5, bool), beta=0.9, nearest=2)
    assert [(pair.word, pair.other) for pair in found if pair.word in (0, 3)] == [(0, 1), (0, 2), (3, 0), (3, 1)]


def test_two_spellings_of_one_lemma_are_no_pair() -> None:
    keys: list[Key] = [("Dog", "noun"), ("dog", "noun")]
    assert confusable(unit((1, 0), (1, 0)), keys, np.ones(2, bool), beta=0.0, nearest=5) == []


def test_confusable_in_blocks_equals_a_plain_computation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("repair_ray.engines.san.prototypes.ROWS", 7)
    vectors = unit(*np.random.default_rng(1).normal(size=(40, 8)))
    keys: list[Key] = [(f"w{n:02d}", "noun" if n % 3 else "verb") for n in range(40)]
    found = confusable(vectors, keys, np.ones(40, bool), beta=0.3, nearest=4)
    plain = []
    for kind in ("noun", "verb"):
        for word in range(40):
            others = [n for n in range(40) if n != word and keys[n][1] == keys[word][1] == kind]
            near = sorted((-float(vectors[word] @ vectors[n]), n) for n in others)
            plain += [(word, n) for cosine, n in near if -cosine >= 0.3][:4]
    assert [(pair.word, pair.other) for pair in found] == plain


def test_random_words_depend_on_the_word_and_the_seed_alone() -> None:
    keys: list[Key] = [(f"w{n}", "noun") for n in range(9)] + [("go", "verb")]
    every = np.ones(10, bool)
    found = random_words(keys, every, nearest=3, seed=1)
    assert found == random_words(keys, every, nearest=3, seed=1) != random_words(keys, every, nearest=3, seed=2)
    of_first = [pair.other for pair in found if pair.word == 0]
    assert len(set(of_first)) == 3 and 0 not in of_first and 9 not in of_first
    assert [pair for pair in found if pair.word == 9] == [], "the only verb"


def test_words_that_mean_the_same_make_room_for_the_next() -> None:
    vectors = unit((1, 0), (0.9, 0.1), (0.8, 0.6))
    every, same = np.ones(3, bool), frozenset({frozenset((0, 1))})
    found = confusable(vectors, KEYS[:3], every, beta=0.5, nearest=1, same=same)
    assert [(pair.word, pair.other) for pair in found] == [(0, 2), (1, 2), (2, 1)]
    drawn = random_words(KEYS[:3], every, nearest=5, seed=0, same=same)
    assert {(pair.word, pair.other) for pair in drawn} == {(0, 2), (1, 2), (2, 0), (2, 1)}
    known = {"dog": {0}, "wolf": {1}, "cat": {2}}
    listed = listed_words([("dog", "wolf"), ("dog", "cat")], KEYS, known, nearest=5, same=same)
    assert [(pair.word, pair.other) for pair in listed] == [(0, 2), (2, 0)]


def test_a_list_of_pairs_holds_both_ways_and_within_a_part_of_speech() -> None:
    known = {"dogs": {0}, "dog": {0}, "wolf": {1}, "cat": {2}, "run": {3}}
    found = listed_words([("Dogs", "cat"), ("wolf", "dog"), ("dog", "run"), ("dog", "horse")], KEYS, known, nearest=5)
    assert [(pair.word, pair.other, pair.cosine) for pair in found] == [
        (0, 2, None),
        (0, 1, None),
        (1, 0, None),
        (2, 0, None),
    ]
    assert listed_words([("horse", "cow")], KEYS, known, nearest=5) == []
