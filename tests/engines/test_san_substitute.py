"""Negative captions by other words and by swapped ones: forms, articles, what is never made, and determinism."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from repair_ray.engines.san.substitute import (
    NO_KEYWORD,
    NO_LIKENESS,
    NO_PAIR,
    NOT_NEGATIVE,
    Made,
    Truth,
    substitute,
    swap,
)
from repair_ray.engines.san.vocabulary import Forms, count_forms, names_of, stand_in
from repair_ray.engines.words import Key, LanguageName, language

ALIKE: dict[Key, list[Key]] = {
    ("circle", "noun"): [("box", "noun"), ("triangle", "noun")],
    ("red", "adjective"): [("orange", "adjective"), ("blue", "adjective")],
}


def made(
    text: str,
    alike: Mapping[Key, Sequence[Key]] = ALIKE,
    *,
    group: Sequence[str] = (),
    seen: Sequence[str] = (),
    name: LanguageName = "en",
    n_hard: int = 20,
    n_swap: int = 1,
    seed: str = "a",
) -> Made:
    lang = language(name)
    words = lang.words(text)
    held = [word for other in (text, *group) for word in lang.words(other)]
    forms = count_forms(word for other in seen for word in lang.words(other))
    truth = Truth.of([text, *group], held)
    return substitute(text, words, alike, forms, lang, truth, n_hard=n_hard, n_swap=n_swap, seed=seed)


def texts(found: Made) -> set[str]:
    return {negative.text for negative in found.negatives}


def test_every_single_substitution_is_found_once() -> None:
    found = made("A red circle, and nothing else")
    assert texts(found) == {
        "An orange circle, and nothing else",
        "A blue circle, and nothing else",
        "A red box, and nothing else",
        "A red triangle, and nothing else",
    }
    assert len(found.negatives) == 4 and found.reason is None
    assert {negative.changes for negative in found.negatives} >= {(("red", "orange"),), (("circle", "box"),)}


def test_two_words_are_replaced_where_there_are_two() -> None:
    found = made("Two red circles", n_swap=2)
    assert texts(found) == {"Two orange boxes", "Two orange triangles", "Two blue boxes", "Two blue triangles"}
    assert texts(made("a circle", n_swap=3)) == {"a box", "a triangle"}, "all there are, where there are fewer"


def test_the_same_seed_takes_the_same_ones() -> None:
    one = made("Two red circles", n_hard=2, seed="a")
    assert one == made("Two red circles", n_hard=2, seed="a") and len(one.negatives) == 2
    assert any(one != made("Two red circles", n_hard=2, seed=str(seed)) for seed in range(5))


def test_no_caption_of_the_group_and_no_word_of_it_is_made() -> None:
    found = made("a red circle", group=["a blue figure", "The red triangle."])
    assert texts(found) == {"an orange circle", "a red box"}
    # As a text only: the negative says "Red boxes!", which a caption of the group says in other letters.
    lang = language("en")
    words = lang.words("red circles")
    truth = Truth.of(["red circles", "RED boxes."])
    left = substitute("red circles", words, ALIKE, {}, lang, truth, n_hard=9, n_swap=1, seed="a")
    assert texts(left) == {"orange circles", "blue circles", "red triangles"}


@pytest.mark.parametrize(
    ("text", "alike", "reason"),
    [
        ("it is what it is", ALIKE, NO_KEYWORD),
        ("😀", ALIKE, NO_KEYWORD),
        ("a green house", ALIKE, NO_LIKENESS),
        ("a red circle", {}, NO_LIKENESS),
        ("a circle in a box near a triangle", ALIKE, NOT_NEGATIVE),
    ],
)
def test_why_a_caption_has_no_negative(text: str, alike: Mapping[Key, Sequence[Key]], reason: str) -> None:
    assert made(text, alike) == Made([], reason)


def test_forms_that_captions_have_come_before_rules() -> None:
    alike: dict[Key, list[Key]] = {("man", "noun"): [("woman", "noun"), ("child", "noun")]}
    assert texts(made("two men", alike)) == {"two womans", "two childs"}, "the rule alone"
    seen = ["three women", "a woman", "many children", "Children!"]
    assert texts(made("two men", alike, seen=seen)) == {"two women", "two children"}
    assert texts(made("a man", alike, seen=seen)) == {"a woman", "a child"}


def test_verbs_take_the_form_that_was_seen() -> None:
    alike: dict[Key, list[Key]] = {("ride", "verb"): [("push", "verb")]}
    assert texts(made("a man riding a bike", alike, seen=["a man pushing a cart"])) == {"a man pushing a bike"}
    assert texts(made("he rides a bike", alike)) == {"he pushes a bike"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Am Montag starker Regen", {"Am Samstag starker Regen", "Am Montag schwacher Regen"}),
        ("am montag starker regen", {"am samstag starker regen", "am montag schwacher regen"}),
        ("AM MONTAG STARKER REGEN", {"AM SAMSTAG STARKER REGEN", "AM MONTAG SCHWACHER REGEN"}),
    ],
)
def test_german_keeps_case_and_ending(text: str, expected: set[str]) -> None:
    alike: dict[Key, list[Key]] = {
        ("Montag", "noun"): [("Samstag", "noun")],
        ("stark", "adjective"): [("schwach", "adjective")],
    }
    # "schwaches" was seen, but it has another ending.
    assert texts(made(text, alike, seen=["ein schwaches Hoch", "am Samstag"], name="de")) == expected


def test_german_nouns_take_the_plural_that_was_seen() -> None:
    alike: dict[Key, list[Key]] = {("Hund", "noun"): [("Katze", "noun")]}
    assert texts(made("drei Hunde", alike, seen=["eine Katze"], name="de")) == {"drei Katze"}, "all that is known"


def test_stand_ins_of_one_count_come_in_order() -> None:
    lang = language("en")
    word = lang.words("two cats")[1]
    forms: Forms = {("mango", "noun"): {("NN2", "mangoes"): 5, ("NN2", "mangos"): 1, ("NN1", "mango"): 9}}
    assert stand_in(word, ("mango", "noun"), forms, lang) == "mangos", "the ending of cats before the more frequent one"
    ties: Forms = {("ox", "noun"): {("NN2", "oxes"): 1, ("NN2", "oxen"): 1}}
    assert stand_in(word, ("ox", "noun"), ties, lang) == "oxen"


def test_what_a_text_may_mean() -> None:
    keys: list[Key] = [("dog", "noun"), ("dog", "verb"), ("cat", "noun")]
    forms: Forms = {("dog", "noun"): {("NN2", "dogs"): 3}, ("dog", "verb"): {("VVZ", "dogs"): 1}}
    assert names_of(keys, forms) == {"dog": {0, 1}, "dogs": {0, 1}, "cat": {2}}


def test_many_words_and_swaps_end_in_time() -> None:
    lang = language("en")
    animals = (
        "dog horse cow sheep goat pig duck hen fox wolf bear lion tiger mouse rat frog snake bird fish bee ant fly"
    )
    text = " ".join(f"a {name}" for name in animals.split())
    words = lang.words(text)
    others: list[Key] = [("cat", "noun"), ("owl", "noun"), ("eel", "noun")]
    alike: dict[Key, list[Key]] = {word.key: others for word in words if word.pos}
    found = substitute(text, words, alike, {}, lang, Truth(frozenset()), n_hard=3, n_swap=12, seed="a")
    assert len(found.negatives) == 3 and all(len(negative.changes) == 12 for negative in found.negatives)


def swapped(text: str, group: Sequence[str] = (), name: LanguageName = "en", n_hard: int = 20) -> Made:
    lang = language(name)
    return swap(text, lang.words(text), lang, Truth.of([text, *group]), n_hard=n_hard, seed="a")


def test_words_of_one_part_of_speech_change_places() -> None:
    assert texts(swapped("A red owl and a green cat")) == {"A green owl and a red cat", "A red cat and a green owl"}
    assert texts(swapped("An owl and a cat")) == {"A cat and an owl"}
    assert len(swapped("A red owl and a green cat", n_hard=1).negatives) == 1
    assert texts(swapped("Starker Wind und schwacher Regen", name="de")) == {
        "Schwacher Wind und starker Regen",
        "Starker Regen und schwacher Wind",
    }


@pytest.mark.parametrize(
    ("text", "group", "reason"),
    [
        ("a red cat", (), NO_PAIR),
        ("a cat and a cat", (), NO_PAIR),
        ("a cat and two cats", (), NO_PAIR),
        ("it is", (), NO_KEYWORD),
        ("an owl and a cat", ("A cat and an owl.",), NOT_NEGATIVE),
    ],
)
def test_no_pair_to_swap(text: str, group: Sequence[str], reason: str) -> None:
    assert swapped(text, group) == Made([], reason)
