"""What counts as a retrieval failure, on four images and four captions whose ranking can be read off a circle.

    angle      0    5    11   20   31   50   85   92
    images     A         B         C              D
    captions        c1        a1        b1   d1

A and B have the same pixels (one group); captions c1 and d1 are equal texts. Nearer on the circle is more similar.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from repair_ray import tables
from repair_ray.config import MiningConfig
from repair_ray.run import CAPTIONS, IMAGES, Recipe, Run, RunError
from repair_ray.stages.gallery import QUERY, prepare
from repair_ray.stages.mine import MineFailures, fold_of, within_budget
from repair_ray.stages.positives import Positives

ANGLES = {"A": 0, "B": 11, "C": 31, "D": 92, "a1": 20, "b1": 50, "c1": 5, "d1": 85}
GROUPS = {"A": "g1", "B": "g1", "C": "g2", "D": "g3"}
TEXTS = {"a1": "ka", "b1": "kb", "c1": "same", "d1": "same"}
EMBEDDINGS = "round1/embeddings"


def vector(item: str) -> list[float]:
    angle = math.radians(ANGLES[item])
    return [math.cos(angle), math.sin(angle)]


def image(item: str, group: str, **changes: Any) -> dict[str, Any]:
    return {"image_id": item, "group_id": group, "split": "train", "status": "ok", **changes}


def caption(item: str, owner: str, group: str, key: str, **changes: Any) -> dict[str, Any]:
    made = {"caption_id": item, "image_id": owner, "group_id": group, "text_key": key, "text": key, "position": 0}
    return {**made, "split": "train", "status": "ok", **changes}


def build(folder: Path, vectors: dict[str, list[float]], images: list[Any], captions: list[Any]) -> Run:
    run = Run(folder)
    embedded: list[dict[str, Any]] = [
        {"item_id": item, "kind": kind, "split": "train", "vector": found, "status": "ok"}
        for kind, items in (
            ("image", [i["image_id"] for i in images]),
            ("caption", [c["caption_id"] for c in captions]),
        )
        for item, found in vectors.items()
        if item in items
    ]
    products: tuple[tuple[str, tables.Table, list[Any]], ...] = (
        (IMAGES, tables.IMAGES, images),
        (CAPTIONS, tables.CAPTIONS, captions),
        (EMBEDDINGS, tables.EMBEDDINGS, embedded),
    )
    for product, kind, rows in products:
        run.ready(product, Recipe({}))
        run.commit(product, Recipe({}), kind, tables.to_table(rows, kind.schema), 0.0)
    return run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    images = [image(item, group) for item, group in GROUPS.items()]
    captions = [caption(item, item[0].upper(), GROUPS[item[0].upper()], key) for item, key in TEXTS.items()]
    # What is broken, or of another split, is neither a positive nor a failure.
    images += [image("X", "g2", status="error"), image("T", "g3", split="test")]
    captions += [caption("t1", "T", "g3", "ka", split="test"), caption("x1", "X", "g2", "kx", status="error")]
    vectors = {item: vector(item) for item in ANGLES}
    return build(tmp_path_factory.mktemp("mine") / "run", vectors, images, captions)


def miner(run: Run, tmp_path: Path, *, ids: list[str] | None = None, **changes: Any) -> MineFailures:
    folder = tmp_path / f"search-{len(list(tmp_path.iterdir()))}"
    files = prepare(run, MiningConfig(), EMBEDDINGS, folder, ids=ids, seed=0)
    return MineFailures(
        id_column="query_id",
        schema=tables.FAILURES.schema,
        markers=str(tmp_path / "markers"),
        poison={},
        arguments={
            "folder": str(files.folder),
            "keep": "top_k",
            "k": 5,
            "per_query": 5,
            "memory_mb": 64,
            **changes,
        },
    )


def query(stage: MineFailures, item: str) -> dict[str, Any]:
    direction = "i2t" if item in GROUPS or item.isupper() else "t2i"
    place = stage._files.ids(QUERY[direction]).to_pylist().index(item)
    return {"query_id": item, "direction": direction, "place": place}


def answers_of(stage: MineFailures, *items: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = stage.process([query(stage, item) for item in items]).to_pylist()
    return rows


def mined(run: Run, tmp_path: Path, *items: str, **changes: Any) -> dict[str, list[tuple[str, int]]]:
    """For each query the false positives with their ranks, or its one row without a failure."""
    found: dict[str, list[tuple[str, int]]] = {item: [] for item in items}
    for row in answers_of(miner(run, tmp_path, **changes), *items):
        if row["status"] == tables.OK:
            found[row["query_id"]].append((row["candidate_id"], row["rank"]))
        else:
            assert row["status"] == tables.NO_FAILURE and row["candidate_id"] is None and row["rank"] is None
            found[row["query_id"]].append((row["reason"], 0))
    return found


NONE = [("no false positive", 0)]


def test_positives_by_hand(run: Run) -> None:
    positives = Positives.read(run, "train")
    assert positives.of_image == {"A": {"a1", "b1"}, "B": {"a1", "b1"}, "C": {"c1", "d1"}, "D": {"c1", "d1"}}
    assert positives.of_caption == {"a1": {"A", "B"}, "b1": {"A", "B"}, "c1": {"C", "D"}, "d1": {"C", "D"}}
    assert positives.of("i2t", "A") == {"a1", "b1"} and positives.of("t2i", "d1") == {"C", "D"}
    assert Positives.read(run, "test").of_image == {"T": {"t1"}}


def test_top_k_takes_every_false_positive_with_its_rank(run: Run, tmp_path: Path) -> None:
    assert mined(run, tmp_path, "A", "B", "C", "D") == {
        "A": [("c1", 1), ("d1", 4)],  # c1, a1, b1, d1: those of its group are none
        "B": [("c1", 1), ("d1", 4)],
        "C": [("a1", 1), ("b1", 2)],  # a1, b1, c1, d1: d1 has the text of its own caption
        "D": [("b1", 2), ("a1", 3)],  # d1, b1, a1, c1
    }
    assert mined(run, tmp_path, "a1", "b1", "c1", "d1") == {
        "a1": [("C", 2), ("D", 4)],  # B, C, A, D
        "b1": [("C", 1), ("D", 3)],  # C, B, D, A
        "c1": [("A", 1), ("B", 2)],  # A, B, C, D
        "d1": [("B", 3), ("A", 4)],  # D, C, B, A
    }


def test_above_gt_takes_what_is_ranked_above_the_best_ground_truth(run: Run, tmp_path: Path) -> None:
    assert mined(run, tmp_path, "A", "C", "D", "a1", "c1", "d1", keep="above_gt") == {
        "A": [("c1", 1)],
        "C": [("a1", 1), ("b1", 2)],
        "D": NONE,
        "a1": NONE,  # B, of its group, is first
        "c1": [("A", 1), ("B", 2)],
        "d1": NONE,
    }


def test_depth_counts_false_positives(run: Run, tmp_path: Path) -> None:
    # k = 1 reaches past the positives: D's first false positive has rank 2.
    assert mined(run, tmp_path, "A", "D", k=1) == {"A": [("c1", 1)], "D": [("b1", 2)]}
    assert mined(run, tmp_path, "A", "D", per_query=1) == {"A": [("c1", 1)], "D": [("b1", 2)]}


def test_memory_budget_changes_nothing(run: Run, tmp_path: Path) -> None:
    every = [*GROUPS, *TEXTS]
    assert mined(run, tmp_path, *every, memory_mb=0) == mined(run, tmp_path, *every)


def test_a_row_says_all_about_its_failure(run: Run, tmp_path: Path) -> None:
    (first, _) = answers_of(miner(run, tmp_path), "A")
    assert first["failure_id"] == tables.row_id("i2t", "A", "c1")
    assert (first["direction"], first["query_id"], first["candidate_id"]) == ("i2t", "A", "c1")
    assert first["ground_truth_id"] == "a1", "the nearest of the group's captions"
    assert first["score"] == pytest.approx(math.cos(math.radians(5)), abs=1e-6)
    assert first["ground_truth_score"] == pytest.approx(math.cos(math.radians(20)), abs=1e-6)


def test_both_directions_in_one_batch(run: Run, tmp_path: Path) -> None:
    rows = answers_of(miner(run, tmp_path), "a1", "A", "d1", "D")
    assert {(row["direction"], row["query_id"]) for row in rows} == {
        ("t2i", "a1"),
        ("i2t", "A"),
        ("t2i", "d1"),
        ("i2t", "D"),
    }
    assert len({row["failure_id"] for row in rows}) == len(rows)


def test_a_fold_has_queries_and_gallery_of_its_own(run: Run, tmp_path: Path) -> None:
    ids = ["A", "B", "D", "a1", "b1", "d1"]
    assert mined(run, tmp_path, "A", "D", "a1", ids=ids) == {
        "A": [("d1", 3)],
        "D": [("b1", 2), ("a1", 3)],
        "a1": [("D", 3)],
    }


def test_a_query_without_its_ground_truth_is_no_failure(run: Run, tmp_path: Path) -> None:
    found = mined(run, tmp_path, "C", "a1", ids=["C", "D", "a1", "b1"])
    assert found["C"] == found["a1"] == [("its ground truth was not embedded", 0)]


def test_ties_by_exact_vectors(tmp_path: Path) -> None:
    # Captions p, q, r and the query's own o are equally near to image I: exactly 0.6.
    vectors = {"I": [1.0, 0.0], "J": [0.0, 1.0], "o": [0.6, 0.8], "p": [0.6, 0.8], "q": [0.6, -0.8], "r": [0.6, -0.8]}
    images = [image("I", "gi"), image("J", "gj")]
    captions = [caption("o", "I", "gi", "ko"), *(caption(c, "J", "gj", f"k{c}") for c in "pqr")]
    run = build(tmp_path / "run", vectors, images, captions)
    for keep in ("top_k", "above_gt"):
        rows = answers_of(miner(run, tmp_path, keep=keep), "I")
        # Ties go by id, and one with the ground truth counts against it, as in evaluation.
        assert [(row["candidate_id"], row["rank"]) for row in rows] == [("p", 2), ("q", 3), ("r", 4)]


def test_failed_rows_keep_their_query(run: Run, tmp_path: Path) -> None:
    stage = miner(run, tmp_path)
    bad = {"query_id": "A", "direction": "i2t", "place": 99}
    made = stage(tables.to_table([query(stage, "D"), bad], tables.QUERIES)).to_pylist()
    error = next(row for row in made if row["status"] == tables.ERROR)
    assert error["query_id"] == "A" and error["reason"].startswith("IndexError")
    assert {row["query_id"] for row in made if row["status"] == tables.OK} == {"D"}


def test_a_vector_that_is_no_unit_vector_stops_with_its_place(tmp_path: Path) -> None:
    vectors = {"I": [1.0, 0.0], "J": [3.0, 4.0], "i": [0.0, 1.0]}
    run = build(
        tmp_path / "run",
        vectors,
        [image("I", "g"), image("J", "h")],
        [caption("i", "I", "g", "k")],
    )
    with pytest.raises(RunError, match=f"the image vectors of {EMBEDDINGS}: row 1 has length 5"):
        miner(run, tmp_path)


def test_budget_keeps_the_best_ranks_of_each_direction() -> None:
    def failure(identity: str, direction: str, rank: int | None, status: str = "ok") -> dict[str, Any]:
        made = {"failure_id": identity, "direction": direction, "query_id": identity, "rank": rank}
        return {**made, "status": status, "reason": None}

    rows = [
        failure("d", "i2t", 2),
        failure("b", "i2t", 1),
        failure("c", "i2t", 1),
        failure("a", "i2t", 3),
        failure("n", "i2t", None, tables.NO_FAILURE),
        failure("e", "t2i", 9),
    ]
    table = tables.to_table(rows, tables.FAILURES.schema)

    def statuses(budget: int | None) -> dict[str, str]:
        made = within_budget(table, MiningConfig(budget=budget)).to_pylist()
        return {row["failure_id"]: row["reason"] or row["status"] for row in made}

    beyond = "beyond mining.budget"
    assert statuses(2) == {"b": "ok", "c": "ok", "d": beyond, "a": beyond, "n": tables.NO_FAILURE, "e": "ok"}
    assert set(statuses(None).values()) == {"ok", tables.NO_FAILURE}


def test_folds_keep_groups_together_and_are_even() -> None:
    folds = [fold_of(f"group {n}", 4) for n in range(4000)]
    assert folds == [fold_of(f"group {n}", 4) for n in range(4000)]
    assert {folds.count(fold) // 100 for fold in range(4)} <= {9, 10}
