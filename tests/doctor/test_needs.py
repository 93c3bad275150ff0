"""What a run will use, by its strategy and those of its variants."""

from __future__ import annotations

from typing import Any

import pytest

from repair_ray.config import parse_config
from repair_ray.doctor.needs import audits, edits, languages, likens

FINE = {"objective": {"fine_grained": True}}


@pytest.mark.parametrize(
    ("settings", "audited", "edited", "likened"),
    [
        ({"strategy": "repair"}, True, True, False),
        ({"strategy": "mined"}, True, False, False),
        ({"strategy": "vanilla"}, False, False, False),
        ({"strategy": "paraphrase"}, False, False, False),
        ({"strategy": "negclip", **FINE}, False, False, False),
        ({"strategy": "san", **FINE}, False, False, True),
        ({"strategy": "san", "negatives": {"similarity": "random"}, **FINE}, False, False, False),
        ({"strategy": "san", "negatives": {"confusable": "pairs.csv"}, **FINE}, False, False, False),
        ({"strategy": "triplet", "edit": {"image_editor": "flux-kontext"}, **FINE}, False, True, True),
        ({"strategy": "vanilla", "variants": {"x": {"strategy": "san", **FINE}}}, False, False, True),
    ],
)
def test_stages_of_a_strategy(settings: dict[str, Any], audited: bool, edited: bool, likened: bool) -> None:
    config = parse_config({"data": {"path": "x"}, "controls": "none", **settings})
    assert (audits(config), edits(config), likens(config)) == (audited, edited, likened)


def test_who_is_asked() -> None:
    model = {"backend": "openai", "model": "m"}
    paraphrasing = {"data": {"path": "x"}, "strategy": "paraphrase", "controls": "none", "edit": {"language": model}}
    assert list(languages(parse_config(paraphrasing))) == ["edit.language"]
    assert list(languages(parse_config({**paraphrasing, "strategy": "mined"}))) == ["language"]
