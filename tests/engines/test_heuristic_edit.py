from __future__ import annotations

import pytest

from repair_ray.engines.heuristic import HeuristicLanguage
from repair_ray.engines.heuristic.edit import caption_edits
from repair_ray.engines.language import Case, Instruction

VALID = "; keep everything else unchanged"


def edits(caption: str, captions: tuple[str, ...], n: int = 3) -> list[str]:
    backend = HeuristicLanguage()
    case = Case("i2t", captions, (caption,), None, caption)
    return [draft.text for draft in backend.edit_caption(case, backend.instruct(case, backend.audit(case)), n)]


def instruct(case: Case, max_changes: int = 4) -> Instruction:
    backend = HeuristicLanguage(max_changes)
    return backend.instruct(case, backend.audit(case))


def image(query: str, *captions: str) -> Instruction:
    return instruct(Case("t2i", (query,), captions, query))


@pytest.mark.parametrize(
    ("caption", "captions", "edited"),
    [
        ("a red circle and a star", ("a blue circle, a star", "a small blue circle"), "a blue circle and a star"),
        ("Two red circles by a star .", ("an orange circle with a star",), "An orange circle by a star ."),
        ("a tiny star beside one cross", ("three crosses and a small star",), "a tiny star beside three crosses"),
        ("a star left of a ring", ("a ring to the left of a star",), "a star right of a ring"),
        (
            "a star over a ring and a heart",
            ("a star left of a ring and one heart",),
            "a star left of a ring and a heart",
        ),
        ("a metal circle with a star", ("an iron circle and a star",), "an iron circle with a star"),
        ("a red circle, a ring and a heart", ("a ring with a heart",), "a ring and a heart"),
        ("An SUV and a red circle", ("An SUV with an orange circle",), "An SUV and an orange circle"),
        (
            "An unidentified star and a red ring",
            ("one unidentified star and a blue ring",),
            "An unidentified star and a blue ring",
        ),
        ("a dog is running on the grass", ("a dog sits on the grass",), "a dog is sitting on the grass"),
        ("a star above a red ring above a heart", ("a star over a heart",), "a star above a heart"),
    ],
)
def test_edits_change_what_conflicts(caption: str, captions: tuple[str, ...], edited: str) -> None:
    assert edited in [edit.text for edit in caption_edits(caption, captions, 5)]


def test_best_edit_first_distinct_and_never_a_copy() -> None:
    captions = ("two small red striped circles left of a blue square", "two red circles left of a blue square")
    source = "two small green striped circles left of a blue square"
    found = edits(source, captions, 5)
    assert found[0] == "two small striped circles left of a blue square"  # with "red" it would be a copy
    assert len(set(found)) == len(found) > 1
    assert not {source, *captions} & set(found)
    assert edits(source, captions, 1) == found[:1]


def test_edited_captions_are_judged_right() -> None:
    captions = ("a small red dotted circle above two blue hollow stars", "a red circle and two blue stars")
    for caption in ("a red ring above two blue stars", "two blue stars over a circle", "a large circle with a star"):
        found = edits(caption, captions)
        assert found
        for text in found:
            case = Case("i2t", captions, (), None, text)
            assert HeuristicLanguage().audit(case).judgement == "benign_match", text


def test_caption_instruction_in_words() -> None:
    case = Case("i2t", ("a small blue circle and a star",), (), None, "a small red circle")
    assert instruct(case).text == f"replace 'red' with 'blue' in 'a small red circle'{VALID}"


@pytest.mark.parametrize(
    ("query", "captions", "steps"),
    [
        ("a blue circle", ("a small red circle",), "change the small red circle to a small blue circle"),
        ("a square", ("two red circles",), "change the two red circles to a red square"),
        ("three stars", ("a red star above a ring",), "change the red star to three red stars"),
        ("a star left of a ring", ("a ring left of a star",), "move the star left of the ring"),
        (
            "a red star left of a ring",
            ("a blue star over a ring",),
            "change the blue star to a red star; move the red star left of the ring",
        ),
        (
            "a ring and an orange heart",
            ("a ring",),
            "add an orange heart",
        ),
        (
            "a star below a ring",
            ("a red ring",),
            "add a star; move the star below the red ring",
        ),
        (
            "a blue circle and a red square",
            ("a red circle and a blue square",),
            "change the red circle to a blue circle; change the blue square to a red square",
        ),
        ("a white dog", ("A black dog on the grass .", "a black dog"), "change the black dog to a white dog"),
    ],
)
def test_image_instructions(query: str, captions: tuple[str, ...], steps: str) -> None:
    assert image(query, *captions) == Instruction(True, steps + VALID)


def test_things_that_the_query_does_not_name_stay() -> None:
    assert "remove" not in image("a red star", "a blue star, a ring and a heart").text


def test_infeasible_says_why() -> None:
    far = image("two small red striped circles", "a large blue dotted star")
    assert not far.feasible
    assert "more than 4 changes" in far.reason
    case = Case("t2i", ("a star",), ("a ring",), "a star")
    assert instruct(case, max_changes=1).feasible
    benign = image("a star", "a red star")
    assert not benign.feasible
    assert "benign_match" in benign.reason
    wide = Case("i2t", ("a large blue dotted star",), (), None, "two small red striped circles")
    assert "changes" in instruct(wide).reason
    assert HeuristicLanguage().edit_caption(wide, instruct(wide), 3) == []


def test_unhappy_arguments() -> None:
    with pytest.raises(ValueError, match="max_changes"):
        HeuristicLanguage(0)
    case = Case("t2i", ("a star",), ("a ring",), "a star")
    with pytest.raises(ValueError, match="i2t"):
        HeuristicLanguage().edit_caption(case, Instruction(True), 1)


def test_general_english_does_not_break() -> None:
    captions = ("A black dog and a tri-colored dog playing on the road .", "Two dogs on pavement .", 'éàü 犬, "x"')
    for caption in (
        "A little girl climbing the stairs to her playhouse .",
        "A dog's (big) ball -- 3 x 5",
        "of of of",
        "the",
    ):
        case = Case("i2t", captions, (caption,), None, caption)
        backend = HeuristicLanguage()
        instruction = backend.instruct(case, backend.audit(case))
        assert isinstance(backend.edit_caption(case, instruction, 3), list)
