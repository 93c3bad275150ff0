"""What captions talk of, counted by hand; and queries of it that are true where they should be."""

from __future__ import annotations

from collections import Counter

from repair_ray.evaluation.attributes import Named, attribute_statistics, choose, draw_weighted, states, text_of
from repair_ray.world.captions import captions
from repair_ray.world.generate import make_scenes
from repair_ray.world.truth import describes

PICTURES = [
    ["a red circle and two small squares", "a circle"],
    ["a red circle", "one red ring"],
    ["a small red circle with three squares"],
    ["two squares"],
]


def named(text: str, pictures: list[list[str]] | None = None, **settings: int) -> int:
    found = attribute_statistics(PICTURES if pictures is None else pictures, **settings)
    return {text_of(c): n for c, n in found.combinations.items()}.get(text, 0)


def test_document_frequencies_by_hand() -> None:
    found = attribute_statistics(PICTURES)
    # Of pictures, not of captions: the first says "circle" twice.
    assert found.images == 4 and found.words["circle"] == 3 and found.words["squares"] == 3
    assert found.values["colour", "red"] == 3 and found.values["size", "small"] == 2
    assert found.values["number", "two"] == 2
    assert [named(text) for text in ("a circle", "a red circle", "a small red circle")] == [3, 3, 1]
    assert [named(text) for text in ("two squares", "two small squares", "three squares")] == [2, 1, 1]
    assert named("a red circle and two small squares") == 1
    assert named("a red circle and two squares") == 1
    # Of two captions of one picture no combination is made.
    assert named("a red circle and a red ring") == 0


def test_limits() -> None:
    assert named("a small red circle", attributes=1) == 0 and named("a red circle", attributes=1) == 3
    assert named("a red circle and two squares", nouns=1) == 0
    assert named("a red circle", least=3) == 3 and named("two squares", least=3) == 0


def test_pairs_that_say_one_thing_twice_are_left_out() -> None:
    pictures = [["a red circle and a blue circle"]]
    assert named("a blue circle and a red circle", pictures) == 1
    assert named("a circle and a red circle", pictures) == 0 and named("a circle and a circle", pictures) == 0


def test_texts() -> None:
    colour, size = ("colour", "red"), ("size", "small")
    assert Named("circle", 1, False, (size, colour)).text == "a small red circle"
    assert Named("orange", 1, False).text == "an orange"
    assert Named("circle", 3, True).text == "three circles"
    assert Named("sheep", 0, True, (("colour", "black and white"),)).text == "black and white sheep"
    assert Named("dog", 1, False, (("action", "run"),)).text == "a dog running"
    assert text_of((Named("dog", 1, False), Named("cat", 2, True))) == "a dog and two cats"


def test_states() -> None:
    combination = (Named("circle", 1, False, (("colour", "red"),)), Named("square", 2, True))
    assert states("two small squares and a red circle", combination)
    assert not states("a red circle and three squares", combination)
    assert not states("a red circle", combination) and states("a large red circle", combination[:1])
    # One thing does not stand for two.
    assert not states("a red circle", (combination[0], combination[0]))


def test_only_what_is_expected_often_enough_is_chosen() -> None:
    found = attribute_statistics(PICTURES)
    chosen = choose(found, 100, 8, 5.0, 6.0, seed=0)
    # 3 of 4 pictures, in a gallery of 8: 6 matches. 2 of 4: 4, too few.
    assert {text_of(c) for c, _ in chosen} == {"a circle", "a red circle"}
    assert [expected for _, expected in chosen] == [6.0, 6.0]
    assert choose(found, 1, 8, 5.0, 6.0, seed=0) == choose(found, 1, 8, 5.0, 6.0, seed=0)


def test_draws_follow_the_weights() -> None:
    firsts = Counter(draw_weighted([8.0, 1.0, 1.0], 1, seed)[0] for seed in range(600))
    assert 430 < firsts[0] < 530  # 480 due, with a deviation of 10
    assert sorted(draw_weighted([1.0, 5.0], 9, 0)) == [0, 1] and draw_weighted([], 3, 0) == []


def test_on_the_world_a_query_is_true_of_the_scenes_that_were_counted() -> None:
    """A scene's first caption says all of it: what it states is what is true."""
    scenes = make_scenes(60, 5, 3, set())
    found = attribute_statistics([captions(scene, 0)[:1] for scene in scenes], least=2)
    chosen = choose(found, 25, 60, 2, 20, seed=1)
    assert len(chosen) == 25
    for combination, expected in chosen:
        text = text_of(combination)
        assert sum(describes(text, scene) for scene in scenes) == expected, text
