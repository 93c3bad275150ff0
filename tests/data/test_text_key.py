from __future__ import annotations

import pytest

from repair_ray.data.text import normal_text, text_key


@pytest.mark.parametrize(
    ("caption", "normal"),
    [
        ("A black  dog\n runs .", "a black dog runs"),
        ("Ｆｕｌｌ　width！", "full width"),  # NFKC: full-width letters, ideographic space, full-width mark
        ("STRASSE", "strasse"),
        ("Straße", "strasse"),  # case folding, not lower()
        ("cafe\u0301", "caf\u00e9"),
        ("Wait…", "wait"),
        ("keycap: #", "keycap: #"),
        ("U.S.A.", "u.s.a"),
        ("?!", "?!"),  # nothing but marks: kept
        ("", ""),
    ],
)
def test_normal_text(caption: str, normal: str) -> None:
    assert normal_text(caption) == normal
    assert normal_text(normal) == normal


def test_keys_differ_where_texts_do() -> None:
    assert text_key("Two dogs.") == text_key("two  dogs")
    assert text_key("keycap: #") != text_key("keycap: *")
    assert text_key("two dogs") != text_key("two, dogs")
    assert len(text_key("")) == 32


def test_lone_surrogates_have_a_key() -> None:
    assert text_key("\ud83d") != text_key("\ud83c")
