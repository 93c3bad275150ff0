"""Negative captions as rows: one a text, reasons where there is none, and a budget that spreads over pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from repair_ray import tables
from repair_ray.run import Recipe, Run
from repair_ray.stages.negatives import WriteNegatives, spread
from repair_ray.stages.word_tables import read_alike, read_forms


@pytest.fixture
def run(tmp_path: Path) -> Run:
    made = Run(tmp_path / "run")
    prototypes = [
        {"word_id": lemma, "word": lemma, "lemma": lemma, "pos": pos, "images": 1, "matches": 1, "status": "ok"}
        | {"forms": [{"text": lemma, "tag": "NN1", "count": 2}]}
        for lemma, pos in (("owl", "noun"), ("cat", "noun"))
    ]
    pairs: list[dict[str, Any]] = [
        {"pair_id": "1", "word": "cat", "pos": "noun", "other": "dog", "rank": 2, "status": "ok"},
        {"pair_id": "2", "word": "cat", "pos": "noun", "other": "owl", "rank": 1, "status": "ok"},
        {"pair_id": "3", "word": "owl", "pos": "noun", "status": "rejected", "reason": "no word is like it"},
    ]
    for product, kind, rows in (("p", tables.PROTOTYPES, prototypes), ("c", tables.CONFUSABLE, pairs)):
        made.ready(product, Recipe({}))
        made.commit(product, Recipe({}), kind, tables.to_table(rows, kind.schema), 0.0)
    return made


def stage(run: Run, *, swaps: bool = False, **changes: Any) -> WriteNegatives:
    arguments = {
        "folder": str(run.folder),
        "prototypes": None if swaps else "p",
        "confusable": None if swaps else "c",
        "language_name": "en",
        "per_caption": 4,
        "swaps": 1,
        "seed": 0,
        **changes,
    }
    kind = tables.NEGATIVES
    return WriteNegatives(
        id_column=kind.id_column,
        schema=kind.schema,
        markers=str(run.folder / "markers"),
        poison={},
        arguments=arguments,
    )


def picture(identity: str, *texts: str, group: tuple[str, ...] = ()) -> dict[str, Any]:
    captions = [{"caption_id": f"{identity}-{n}", "text": text} for n, text in enumerate(texts)]
    return {"image_id": identity, "query_id": identity, "captions": captions, "group_captions": list(group)}


def answers(made: WriteNegatives, *pictures: dict[str, Any]) -> list[dict[str, Any]]:
    return list(made(tables.to_table(list(pictures), tables.CAPTIONED)).to_pylist())


def test_tables_say_what_may_stand_in(run: Run) -> None:
    assert read_alike(run, "c") == {("cat", "noun"): [("owl", "noun"), ("dog", "noun")]}, "nearest first"
    assert read_forms(run, "p")["owl", "noun"] == {("NN1", "owl"): 2}


def test_a_row_is_a_negative_of_its_picture_and_caption(run: Run) -> None:
    found = answers(stage(run), picture("i", "a red cat", "the cat", "an owl nearby"))
    assert [(row["candidate_id"], row["text"], row["instruction"], row["status"], row["reason"]) for row in found] == [
        ("i-0", "a red dog", "cat -> dog", "ok", None),
        ("i-1", "the dog", "cat -> dog", "ok", None),
        ("i-2", None, None, "rejected", "no word of the caption has one that is like it"),
    ], "an owl is in the picture: it never stands in"
    first = found[0]
    assert first["kind"] == tables.NEGATIVE and first["direction"] == "i2t" and first["query_id"] == "i"
    assert first["ground_truth_id"] == first["candidate_id"]
    assert first["failure_id"] == tables.row_id("negative", "i", "i-0", "a red dog")
    assert len({row["failure_id"] for row in found}) == 3


def test_captions_of_the_group_are_true_too(run: Run) -> None:
    (found,) = answers(stage(run), picture("i", "a cat", group=("a dog", "an owl")))
    assert found["reason"] == "each substitution may be true of the picture"


def test_two_captions_that_become_one_text_give_it_once(run: Run) -> None:
    found = answers(stage(run), picture("i", "a cat", "A cat", group=("an owl",)))
    assert [(row["text"], row["reason"]) for row in found] == [
        ("a dog", None),
        (None, "another caption of the picture gave the same negatives"),
    ]


def test_swaps_need_no_tables(run: Run) -> None:
    found = answers(stage(run, swaps=True), picture("i", "An owl and a cat", "a cat"))
    assert [(row["text"], row["reason"]) for row in found] == [
        ("A cat and an owl", None),
        (None, "the caption has no two words of one part of speech"),
    ]


def test_the_seed_and_the_caption_choose(run: Run) -> None:
    pictures = [picture(f"i{n}", "a cat") for n in range(20)]
    one = answers(stage(run, per_caption=1), *pictures)
    assert one == answers(stage(run, per_caption=1), *pictures)
    assert {row["text"] for row in one} == {"an owl", "a dog"}
    other = answers(stage(run, per_caption=1, seed=1), *pictures)
    assert [row["text"] for row in one] != [row["text"] for row in other]


def test_a_picture_that_cannot_be_done_is_one_error_row(run: Run) -> None:
    made = stage(run)
    made._poison = {"i": "raise"}
    (found,) = answers(made, picture("i", "a cat", "a dog"))
    assert found["status"] == tables.ERROR and found["candidate_id"] == "i-0" and found["query_id"] == "i"


def rows(*counts: int) -> pa.Table:
    made = [
        {
            "failure_id": f"f{image}-{n}",
            "direction": "i2t",
            "query_id": f"i{image}",
            "candidate_id": "c",
            "status": "ok",
        }
        | {"ground_truth_id": "c"}
        for image, count in enumerate(counts)
        for n in range(count)
    ]
    made.append({**made[0], "failure_id": "x", "status": "rejected", "reason": "none"})
    return tables.to_table(made, tables.EDITS.schema)


def kept(table: pa.Table) -> dict[str, int]:
    found: dict[str, int] = {}
    for row in table.to_pylist():
        if row["status"] == "ok":
            found[row["query_id"]] = found.get(row["query_id"], 0) + 1
        else:
            assert row["reason"] in ("none", "beyond mining.budget")
    return found


def test_a_budget_spreads_over_pictures() -> None:
    table = rows(9, 1, 4)
    assert spread(table, None, 0).equals(table)
    assert kept(spread(table, 3, 0)) == {"i0": 1, "i1": 1, "i2": 1}
    assert kept(spread(table, 5, 0)) == {"i0": 2, "i1": 1, "i2": 2}
    assert kept(spread(table, 11, 0)) == {"i0": 6, "i1": 1, "i2": 4}
    assert kept(spread(table, 99, 0)) == {"i0": 9, "i1": 1, "i2": 4}
    assert len(spread(table, 3, 0)) == len(table), "what is beyond stays as a row"
    assert spread(table, 3, 0).equals(spread(table, 3, 0)) and not spread(table, 3, 0).equals(spread(table, 3, 1))
