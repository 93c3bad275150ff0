"""Paraphrases by synonyms say the same, and are always the same."""

from __future__ import annotations

import pytest

from repair_ray.engines.heuristic import HeuristicLanguage
from repair_ray.engines.heuristic.edit import borne_out
from repair_ray.engines.heuristic.objects import view_of
from repair_ray.engines.heuristic.paraphrase import paraphrases
from repair_ray.engines.language import Case


@pytest.mark.parametrize(
    "caption",
    [
        "a small red circle to the left of two large striped squares",
        "one big plain star above a tiny dotted triangle",
        "Two little hollow hearts under a bike.",
    ],
)
def test_a_paraphrase_says_the_same_in_other_words(caption: str) -> None:
    found = paraphrases(caption, 3)
    assert found and len(set(found)) == len(found)
    assert caption not in found
    for text in found:
        # The rules that tell whether captions bear a text out find nothing that differs, in either direction.
        assert borne_out(text, view_of((caption,))), text
        assert borne_out(caption, view_of((text,))), text
    assert paraphrases(caption, 3) == found


def test_a_caption_without_synonyms_has_no_paraphrase() -> None:
    assert paraphrases("a red star", 3) == []


def test_the_backend_paraphrases_the_querys_caption() -> None:
    case = Case("t2i", ("a big dog", "a dog"), ("a big dog",), query_text="a big dog")
    assert HeuristicLanguage().paraphrase(case, 1) == [paraphrases("a big dog", 1)[0]]
