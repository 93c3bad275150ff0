from __future__ import annotations

import pytest

from repair_ray.engines.heuristic import lexicon as lex
from repair_ray.engines.heuristic.objects import name_of, view_of
from repair_ray.engines.heuristic.parse import parse
from repair_ray.engines.heuristic.phrases import Phrase


def shown(phrase: Phrase) -> str:
    attrs = [attr.value for attr in phrase.attrs]
    return " ".join([str(phrase.count), *attrs, *(word for word, _ in phrase.opens), phrase.head])


@pytest.mark.parametrize(
    ("caption", "phrases"),
    [
        ("two tiny red striped circles", ["2 small red striped circle"]),
        ("an orange plain star", ["1 orange solid star"]),
        ("a red circle, a big ring and one cross", ["1 red circle", "1 large ring", "1 cross"]),
        ("a black and white dog", ["1 black white dog"]),
        ("an orange", ["1 orange"]),
        ("three crosses next to boxes", ["3 cross", "None box"]),
        ("A man throws a ball to a boy .", ["1 throw man", "1 ball", "1 boy"]),
        ("A child in a pink dress is climbing", ["1 climb child", "1 pink dress"]),
        ("the circle is red", ["None red circle"]),
        ("A group of people sit on a bench", ["None sit person", "1 bench"]),
        ("there are two dogs", ["2 dog"]),
        ("a picture of a wooden house", ["1 wooden house"]),
        ("man detective: medium-dark skin tone", ["None man detective", "None medium-dark skin tone"]),
        ("a red dog and a cat, the dog", ["1 red dog", "1 cat"]),
        ("", []),
        ("... !?", []),
        ("red", ["None red"]),
    ],
)
def test_phrases(caption: str, phrases: list[str]) -> None:
    assert [shown(phrase) for phrase in parse(caption).phrases] == phrases


@pytest.mark.parametrize(
    ("caption", "relations"),
    [
        ("a star to the left of a ring", [(0, "horizontal", -1, 1)]),
        ("a star is right of a ring", [(0, "horizontal", 1, 1)]),
        ("a star over a ring beneath a heart", [(0, "vertical", -1, 1), (1, "vertical", 1, 2)]),
        ("a star left of a ring and above a heart", [(0, "horizontal", -1, 1), (0, "vertical", -1, 2)]),
        ("a star above and to the left of a ring", [(0, "vertical", -1, 1), (0, "horizontal", -1, 1)]),
        ("to the left of a star is a heart", [(1, "horizontal", -1, 0)]),
        ("a circle with a square to its right", [(1, "horizontal", 1, 0)]),
        ("a star next to a ring, with a heart", []),
        ("left of", []),
    ],
)
def test_relations(caption: str, relations: list[tuple[int, str, int, int]]) -> None:
    assert [(r.subject, r.axis, r.sign, r.object) for r in parse(caption).relations] == relations


@pytest.mark.parametrize(
    ("one", "many"),
    [("circle", "circles"), ("cross", "crosses"), ("box", "boxes"), ("city", "cities"), ("child", "children"),
     ("horse", "horses"), ("house", "houses"), ("bus", "buses"), ("sheep", "sheep")],
)  # fmt: skip
def test_singular_and_plural(one: str, many: str) -> None:
    assert (lex.singular(many), lex.plural(one), lex.singular(one)) == (one, many, one)


def test_article_by_sound() -> None:
    assert [lex.article(word) for word in ("orange", "red", "hour", "unicorn", "Open")] == ["an", "a", "an", "a", "an"]


def test_captions_merge_into_distinct_things() -> None:
    view = view_of(["a circle above a square", "a red circle", "a small red circle, a blue circle and a square"])
    assert sorted(name_of(thing) for thing in view.things) == ["a blue circle", "a small red circle", "a square"]


def test_an_ambiguous_phrase_teaches_nothing() -> None:
    view = view_of(["a red circle and a blue circle", "a small circle"])
    assert sorted(name_of(thing) for thing in view.things) == ["a blue circle", "a red circle"]


def test_sides_are_known_both_ways_and_through_a_third() -> None:
    view = view_of(["a star left of a ring", "a ring left of a heart"])
    order = {thing.head: i for i, thing in enumerate(view.things)}
    assert view.sides[order["star"], order["heart"], "horizontal"] == {-1}
    assert view.sides[order["heart"], order["star"], "horizontal"] == {1}


def test_names_of_many() -> None:
    view = view_of(["two small red striped crosses", "hearts"])
    assert [name_of(thing, definite=True) for thing in view.things] == [
        "the two small red striped crosses",
        "the hearts",
    ]
