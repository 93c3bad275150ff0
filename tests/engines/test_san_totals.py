"""Words matched with tokens and added up, and what is like what: by sight, by text, at random, by a list."""

from __future__ import annotations

import numpy as np
import pytest

from repair_ray.engines.san.alike import NothingAlike, Similarity, alike_of, likenesses
from repair_ray.engines.san.totals import WordMatcher, WordTotals
from repair_ray.engines.words import language

# Word features on a circle, in degrees: red and pink look alike, cat and dog mean alike.
ANGLES = {"red": 0, "pink": 20, "blue": 90, "cat": 180, "dog": 200}


def at(degrees: float) -> np.ndarray:
    return np.array([np.cos(np.radians(degrees)), np.sin(np.radians(degrees))], np.float32)


def encode(texts: list[str]) -> np.ndarray:
    return np.stack([at(ANGLES[text.removeprefix("a ")]) for text in texts])


CAPTIONS = [["a red cat", "The cat!"], ["pink dogs"], ["a blue cat"], ["it is"]]
TOKENS = [np.stack([at(5), at(170)]), np.stack([at(10)]), np.stack([at(95), at(300)]), np.stack([at(0)])]


def totals() -> WordTotals:
    return WordMatcher(language("en"), encode, "a {}", alpha=0.9).match(CAPTIONS, TOKENS)[0]


def test_words_and_matches_of_items() -> None:
    found, matches = WordMatcher(language("en"), encode, "a {}", alpha=0.9).match(CAPTIONS, TOKENS)
    assert [lemma for lemma, _ in found.keys] == ["blue", "cat", "dog", "pink", "red"]
    assert found.items == [1, 2, 1, 1, 1]
    assert matches == [2, 1, 1, 0], "red and cat; pink (10 degrees off), but not dog; blue; no word at all"
    assert found.forms["dog", "noun"] == {("NN2", "dogs"): 1}
    assert found.forms["cat", "noun"] == {("NN1", "cat"): 3}
    np.testing.assert_allclose(found.sums.vectors()[4], at(5), atol=1e-6)
    np.testing.assert_allclose(found.text_vectors["dog", "noun"], at(200), atol=1e-6)


def test_parts_add_up_to_the_whole() -> None:
    matcher = WordMatcher(language("en"), encode, "a {}", alpha=0.9)
    parts = [matcher.match([texts], [tokens])[0] for texts, tokens in zip(CAPTIONS, TOKENS, strict=True)]
    merged, whole = WordTotals.merged(reversed(parts)), totals()
    assert merged.keys == whole.keys and merged.items == whole.items and merged.forms == whole.forms
    assert (merged.sums.sums == whole.sums.sums).all() and (merged.sums.best == whole.sums.best).all()
    assert WordTotals.merged([]).keys == []


def like(similarity: Similarity, **changes: object) -> dict[str, list[str]]:
    settings: dict[str, object] = {"alpha": 0.9, "beta": 0.9, "nearest": 5, **changes}
    whole = totals()
    found = likenesses(whole, similarity, **settings)  # type: ignore[arg-type]
    return {word: [other for other, _ in others] for (word, _), others in alike_of(whole, found).items()}


def test_what_is_like_what() -> None:
    assert like("visual") == {"red": ["pink"], "pink": ["red"]}, "the dog matched nothing"
    assert like("text") == {"red": ["pink"], "pink": ["red"], "cat": ["dog"], "dog": ["cat"]}
    assert {word: len(others) for word, others in like("random", nearest=1).items()} == dict.fromkeys(ANGLES, 1)
    assert like("visual", pairs=[("blue", "Red"), ("Dogs", "cat")]) == {
        "blue": ["red"],
        "cat": ["dog"],
        "dog": ["cat"],
        "red": ["blue"],
    }


def test_words_that_mean_the_same_do_not_stand_in() -> None:
    assert like("text", same=[("Dogs", "cat")]) == {"red": ["pink"], "pink": ["red"]}
    with pytest.raises(NothingAlike, match=r"\(the nearest two have 0.0\d+\)"):
        like("visual", same=[("red", "pink"), ("red", "unknown")])


def test_a_reading_of_a_word_that_is_rare_does_not_count() -> None:
    """The tagger takes `square` for an adjective here: once of nine times."""
    captions = [["a square and a circle"]] * 8 + [["a square circle"], ["a red ball"]]
    found = WordMatcher(language("en")).match(captions)[0]
    assert {key: items for key, items in zip(found.keys, found.items, strict=True) if key[0] == "square"} == {
        ("square", "adjective"): 1,
        ("square", "noun"): 8,
    }
    pairs = alike_of(found, likenesses(found, "random", alpha=0, beta=0, nearest=9))
    assert ("square", "adjective") not in pairs
    assert all(("square", "adjective") not in others for others in pairs.values())
    assert {lemma for lemma, _ in pairs["square", "noun"]} == {"circle", "ball"}


@pytest.mark.parametrize(
    ("similarity", "changes", "message"),
    [
        ("visual", {"beta": 0.999}, r"negatives.beta=0.999 \(the nearest two have 0.996\); lower it"),
        ("visual", {"pairs": [("horse", "cow")]}, "none of the 1 listed pairs has both of its words"),
    ],
)
def test_nothing_alike_says_how_near_it_came(similarity: Similarity, changes: dict[str, object], message: str) -> None:
    with pytest.raises(NothingAlike, match=message):
        like(similarity, **changes)


def test_nothing_matched_or_nothing_said() -> None:
    far = WordMatcher(language("en"), encode, "a {}", alpha=0.999).match(CAPTIONS, TOKENS)[0]
    with pytest.raises(NothingAlike, match=r"negatives.alpha=0.999 with a word .*\(the nearest has 0.996\); lower it"):
        likenesses(far, "visual", alpha=0.999, beta=0.5, nearest=3)
    none = WordMatcher(language("en"), encode).match([["it is"]], [TOKENS[0]])[0]
    single = WordMatcher(language("en")).match([["a red cat"]])[0]
    with pytest.raises(NothingAlike, match=r"no content word; is negatives.language right\?"):
        likenesses(none, "visual", alpha=0.5, beta=0.5, nearest=3)
    with pytest.raises(NothingAlike, match="no two words of one part of speech"):
        likenesses(single, "random", alpha=0.5, beta=0.5, nearest=3)
