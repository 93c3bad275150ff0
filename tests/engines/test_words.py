"""Words of captions in English and German: content words, lemmas, and forms by simple rules."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from repair_ray.engines.words import Language, Word, keywords, language
from repair_ray.engines.words.hanover import English, _NumbersOnly


@pytest.fixture(scope="module")
def english() -> Language:
    return language("en")


@pytest.fixture(scope="module")
def german() -> Language:
    return language("de")


def content(found: list[Word]) -> list[tuple[str, str, str | None]]:
    return [(word.text, word.lemma, word.pos) for word in keywords(found)]


def test_content_words_of_an_english_caption(english: Language) -> None:
    found = english.words("Two men are riding red bicycles next to a striped car, and 12 dogs run.")
    assert content(found) == [
        ("Two", "two", "number"),
        ("men", "man", "noun"),
        ("riding", "ride", "verb"),
        ("red", "red", "adjective"),
        ("bicycles", "bicycle", "noun"),
        ("striped", "striped", "adjective"),
        ("car", "car", "noun"),
        ("12", "12", "number"),
        ("dogs", "dog", "noun"),
        ("run", "run", "verb"),
    ]


def test_places_are_those_of_the_text(english: Language) -> None:
    text = "  a well-known dog's bone…  "
    found = english.words(text)
    assert [text[word.start : word.end] for word in found] == [word.text for word in found]
    assert [word.text for word in found] == ["a", "well-known", "dog's", "bone"]


@pytest.mark.parametrize("text", ["", "   ", "😀 … !", "漢字", "\u0301", "a" * 100_000])
def test_texts_without_words_and_odd_ones(english: Language, text: str) -> None:
    found = english.words(text)
    assert "".join(word.text for word in found) in text
    assert keywords(found) == []


@pytest.mark.parametrize(
    "text",
    [
        "Am Montag starker Regen im Norden bei zwölf Grad",
        "am montag starker regen im norden bei zwölf grad",
        "AM MONTAG STARKER REGEN IM NORDEN BEI ZWÖLF GRAD",
    ],
)
def test_german_is_read_in_any_case(german: Language, text: str) -> None:
    """Weather texts of sign corpora are in lower case, glosses in capitals."""
    assert [(lemma, pos) for _, lemma, pos in content(german.words(text))] == [
        ("Montag", "noun"),
        ("stark", "adjective"),
        ("Regen", "noun"),
        ("Norden", "noun"),
        ("zwölf", "number"),
        ("Grad", "noun"),
    ]


def test_german_verbs_and_auxiliaries(german: Language) -> None:
    assert content(german.words("Die Hunde sind müde und schlafen, zwei laufen.")) == [
        ("Hunde", "Hund", "noun"),
        ("müde", "müde", "adjective"),
        ("schlafen", "schlafen", "verb"),
        ("zwei", "zwei", "number"),
        ("laufen", "laufen", "verb"),
    ]


@pytest.mark.parametrize("text", ["to the left of a dog", "left of a dog", "at the top right, in front of a dog"])
def test_where_something_is_is_no_content_word(english: Language, text: str) -> None:
    assert [word.text for word in keywords(english.words(text))] == ["dog"]


def like(lang: Language, text: str, word: str) -> Word:
    return next(found for found in lang.words(text) if found.text == word)


@pytest.mark.parametrize(
    ("lemma", "plural"),
    [("dog", "dogs"), ("box", "boxes"), ("bush", "bushes"), ("cherry", "cherries"), ("boy", "boys"), ("bus", "buses")],
)
def test_english_plurals(english: Language, lemma: str, plural: str) -> None:
    assert english.inflected(lemma, like(english, "two cats", "cats")) == plural
    assert english.inflected(lemma, like(english, "a cat", "cat")) == lemma


def test_german_adjectives_keep_their_ending(german: Language) -> None:
    assert german.inflected("blau", like(german, "ein roter Ball", "roter")) == "blauer"
    assert german.inflected("Haus", like(german, "zwei Straßen", "Straßen")) == "Haus"


@pytest.mark.parametrize(
    ("following", "article"),
    [("dog", "a"), ("owl", "an"), ("unicorn", "a"), ("umbrella", "an"), ("hour", "an"), ("house", "a"), ("one", "a")],
)
def test_articles(english: Language, german: Language, following: str, article: str) -> None:
    assert english.before("a", following) == article
    assert english.before("An", following) == article.capitalize()
    assert english.before("the", following) == "the"
    assert german.before("an", following) == "an"


def test_a_word_without_a_part_of_speech_has_no_key(english: Language) -> None:
    with pytest.raises(ValueError, match="'the' is no content word"):
        _ = english.words("the dog")[0].key


def test_a_model_that_names_code_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model").write_bytes(pickle.dumps(Path("x")))
    with (tmp_path / "model").open("rb") as file, pytest.raises(pickle.UnpicklingError, match=r"must not name pathlib"):
        _NumbersOnly(file).load()


def test_a_file_in_the_working_directory_is_not_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / English.file).write_bytes(b"not a model")
    monkeypatch.chdir(tmp_path)
    assert English().words("dogs")[0].lemma == "dog"
