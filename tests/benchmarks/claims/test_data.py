"""The data that claims are measured on: minimal pairs, and short captions with all that they are true of."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from benchmarks.claims import short_captions
from benchmarks.claims.__main__ import TABLES
from benchmarks.claims.minimal_pairs import accuracies, minimal_pairs
from benchmarks.claims.runs import CONFIGS
from benchmarks.claims.short_captions import keywords
from repair_ray.config import load_config
from repair_ray.engines.retriever import RetrieverSpec
from repair_ray.world.truth import describes, edit_distance


def test_minimal_pairs_differ_in_one_thing_and_each_caption_is_true_of_its_own() -> None:
    pairs = minimal_pairs(40, 0)
    assert pairs == minimal_pairs(40, 0) != minimal_pairs(40, 1)
    for a, b, said_a, said_b in pairs:
        assert edit_distance(a, b) == 1
        assert (describes(said_a, a), describes(said_a, b)) == (True, False)
        assert (describes(said_b, b), describes(said_b, a)) == (True, False)


def test_an_untrained_retriever_is_near_chance_on_minimal_pairs() -> None:
    found = accuracies(RetrieverSpec("tiny-64"), 0, 60)
    # Two right of two by chance: 25 %, all four: 16.7 %.
    assert found["both"] <= min(found["i2t"], found["t2i"]) and found["both"] < 35


def test_short_captions_and_their_truth(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(short_captions, "SCENES", {"train": 30, "validation": 8, "test": 60})
    found = short_captions.world(tmp_path, 0)
    rows = pq.read_table(tmp_path / "test.parquet").to_pylist()
    assert [row["image"]["bytes"] for row in rows] == found.pictures
    assert all(len(row["captions"]) == 1 for row in rows)
    known = pq.read_table(tmp_path / short_captions.ALL / "test.parquet").to_pylist()
    assert [row["image"] for row in known] == [row["image"] for row in rows]
    assert all(row["captions"][0] in whole["captions"] for row, whole in zip(rows, known, strict=True))
    assert max(len(whole["captions"]) for whole in known) > 1
    assert found.queries and all(2 <= len(places) <= short_captions.MOST for places in found.queries.values())
    for place, row in enumerate(rows):
        said = row["captions"][0].replace("one ", "a ")
        if said in found.queries:
            assert place in found.queries[said]
    before = (tmp_path / "train.parquet").stat().st_mtime_ns
    assert short_captions.world(tmp_path, 0) == found
    assert (tmp_path / "train.parquet").stat().st_mtime_ns == before


@pytest.mark.parametrize(
    ("captions", "expected"),
    [
        (["man teacher", "man teacher: man, instructor, teacher"], ["instructor", "man", "teacher"]),
        (["flag: San Marino", "flag: San Marino: SM, flag"], ["SM", "flag"]),
        (["kiss", "another text"], []),
        (["kiss"], []),
    ],
)
def test_keywords_of_an_emoji(captions: list[str], expected: list[str]) -> None:
    assert keywords(captions) == expected


@pytest.mark.parametrize("config", sorted(CONFIGS.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_config_is_one(config: Path) -> None:
    made = load_config(config)
    for name in made.control_names:
        made.control(name)


def test_every_table_has_a_name_of_its_own() -> None:
    assert len(set(TABLES.values())) == len(TABLES)
