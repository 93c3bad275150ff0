"""The graded truth of captions: by hand, and that nothing that is measured is trained on."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from benchmarks.claims.graded_captions import emoji, emoji_truth, facts_in_common, keywords, world
from repair_ray.world.parsing import parse

SAMPLE = Path(__file__).parents[2] / "fixtures" / "emoji" / "sample.parquet"


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        # A phrase states shape, colour and count here: three facts.
        ("a red circle", "one red circle", 1.0),
        ("a red circle", "a blue circle", 2 * 2 / 6),
        ("a red circle", "a red square", 0.0),
        # 4 + 2 facts of two groups and one relation; synonyms, order and the other side's word say the same.
        ("two small red circles left of a star", "a star to the right of two tiny red circles", 1.0),
        ("two small red circles left of a star", "a star left of two small red circles", 2 * 6 / 14),
        ("two small red circles left of a star", "two small red circles and a star", 2 * 6 / 13),
        # Two circles against one: the matching that has more in common counts, with the large one.
        ("a small red circle and a large blue circle", "a large green circle", 2 * 3 / 12),
        ("a red circle left of a blue circle", "a blue circle left of a red circle", 2 * 6 / 14),
    ],
)
def test_facts_in_common_by_hand(one: str, other: str, expected: float) -> None:
    said = parse(one), parse(other)
    assert said[0] is not None and said[1] is not None
    assert facts_in_common(*said) == pytest.approx(expected)
    assert facts_in_common(said[1], said[0]) == pytest.approx(expected)


def test_world_pairs_are_spread_over_the_truth_and_new() -> None:
    found = world(3, scenes=30, pairs=50)
    assert len(found.texts) == len(found.groups) == 150
    assert set(Counter(found.groups).values()) == {5}
    for pairs in (found.validation, found.test):
        assert len(pairs) >= 45
        assert all(0 <= pair.score <= 1 for pair in pairs)
        assert max(Counter(int(min(pair.score, 0.999) * 10) for pair in pairs).values()) == 5
        assert len({(pair.first, pair.second) for pair in pairs}) == len(pairs)
    measured = {text for pair in found.test for text in (pair.first, pair.second)}
    tuned_on = {text for pair in found.validation for text in (pair.first, pair.second)}
    # Short captions such as "a red circle" may come twice; whole scenes do not.
    assert len(measured & set(found.texts)) < len(measured) / 10
    assert len(measured & tuned_on) < len(measured) / 10
    assert world(3, scenes=30, pairs=50) == found
    assert world(4, scenes=30, pairs=50).test != found.test


def row(name: str, words: str, group: str, subgroup: str) -> dict[str, Any]:
    return {"captions": [name, f"{name}: {words}"], "group": group, "subgroup": subgroup}


def test_emoji_truth_by_hand() -> None:
    grin, cat = row("grinning face", "face, grin", "smileys", "face-smiling"), row("cat", "cat, face", "animals", "cat")
    frown = row("frowning face", "face, frown", "smileys", "face-concerned")
    assert keywords(grin) == {"face", "grin"}
    assert emoji_truth(grin, grin) == 3.0
    assert emoji_truth(grin, frown) == pytest.approx(1 + 1 / 3)
    assert emoji_truth(grin, cat) == pytest.approx(1 / 3)
    # A sub-group of the same name in another group is another sub-group.
    assert emoji_truth(cat, row("box", "box", "objects", "cat")) == 0.0


def test_emoji_of_files(tmp_path: Path) -> None:
    sample = pq.read_table(SAMPLE)
    for split in ("train", "validation", "test"):
        rows = [r for r in sample.to_pylist() if r["split"] == split]
        pq.write_table(sample.from_pylist(rows, sample.schema), tmp_path / f"{split}.parquet")
    found = emoji(tmp_path, seed=0, pairs=40)
    names = {r["captions"][0] for r in sample.to_pylist() if r["split"] == "test"}
    assert {text for pair in found.test for text in (pair.first, pair.second)} <= names
    assert not names & set(found.texts)
    # Two vendors have the same texts: each comes once, and both captions of an emoji are one group.
    assert len(found.texts) == len(set(found.texts))
    assert max(Counter(found.groups).values()) == 2
    assert all(0 <= pair.score <= 3 for pair in found.test)
