"""From tables to a training set: negatives, paraphrases and a teacher's features find their places."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from repair_ray import tables
from repair_ray.data.text import text_key
from repair_ray.run import CAPTIONS, IMAGES, Recipe, Run, RunError
from repair_ray.synthesis.teacher import read_features
from repair_ray.synthesis.training_set import training_set
from repair_ray.training.pairs import ABSENT

SIZE = 4


def commit(run: Run, product: str, kind: tables.Table, rows: list[dict[str, Any]]) -> None:
    run.ready(product, Recipe({}))
    run.commit(product, Recipe({}), kind, tables.to_table(rows, kind.schema), 0.0)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """SIZE pictures with one caption each to train on, and one to test on."""
    run = Run(tmp_path)
    images, captions = [], []
    for n in range(SIZE + 1):
        usual = {"split": "test" if n == SIZE else "train", "status": tables.OK, "group_id": f"g{n}"}
        images.append({"image_id": f"i{n}", "uri": f"{n}.png", "name": f"{n}.png", **usual})
        text = {"text": f"Text {n}", "text_key": text_key(f"Text {n}"), "position": 0}
        captions.append({"caption_id": f"c{n}", "image_id": f"i{n}", **text, **usual})
    commit(run, IMAGES, tables.IMAGES, images)
    commit(run, CAPTIONS, tables.CAPTIONS, captions)
    return run


def edit(kind: str, direction: str, query: str, other: str, **more: Any) -> dict[str, Any]:
    identity = tables.row_id(kind, direction, query, more.get("text"))
    pair = {"failure_id": identity, "direction": direction, "query_id": query, "kind": kind}
    return {**pair, "candidate_id": other, "ground_truth_id": other, "status": tables.OK, **more}


def test_negatives_and_their_pictures_become_contrasts(run: Run) -> None:
    rows = [
        edit(tables.NEGATIVE, "i2t", "i1", "c1", text="Text Z"),
        edit(tables.NEGATIVE, "i2t", "i1", "c1", text="no use", status=tables.REJECTED),
        edit(tables.NEGATIVE, "i2t", "i2", "c2", text="Text 3"),
        edit(tables.NEGATIVE, "t2i", "c1", "i1", text="Text Z", uri="edited.png"),
    ]
    commit(run, "edits", tables.EDITS, rows)
    items, pairs = training_set(run, ("train",), ("edits",))
    contrasts = {items.texts[c.negative]: c for c in pairs.contrasts}
    picture = list(items.images).index(("edited.png", None, None))
    said = next(c.caption for c in pairs.contrasts if c.image == picture)
    assert {text: (c.anchor, c.image, c.caption) for text, c in contrasts.items()} == {
        "Text Z": (1, 1, 1),
        "Text 3": (2, 2, 2),
        "Text 1": (1, picture, said),
    }
    assert len(pairs.contrasts) == 3
    assert items.texts[said] == "Text Z"
    assert not pairs.corrected and pairs.anchors.tolist() == [0, 1, 2, 3]
    # The picture of a negative shows it; the caption that the negative was made from is not true of that picture.
    negative = contrasts["Text Z"].negative
    known = pairs.known(np.array([1, picture]), np.array([1, negative, said]))
    assert known.tolist() == [[True, False, False], [False, True, True]]
    # A negative that is another picture's caption is true of that picture.
    borrowed = contrasts["Text 3"].negative
    assert pairs.known(np.array([2, 3]), np.array([borrowed])).tolist() == [[False], [True]]


def test_a_paraphrase_is_a_further_anchor_of_its_picture(run: Run) -> None:
    rows = [
        edit(tables.PARAPHRASE, "t2i", "c2", "i2", text="Said otherwise"),
        edit(tables.PARAPHRASE, "t2i", "c3", "i3", status=tables.REJECTED),
    ]
    commit(run, "edits", tables.EDITS, rows)
    items, pairs = training_set(run, ("train",), ("edits",))
    assert [items.texts[c] for c in pairs.captions_of(2)] == ["Text 2", "Said otherwise"]
    assert len(pairs.captions_of(3)) == 1
    assert pairs.caption_image.tolist() == [0, 1, 2, 3, 2]
    assert ABSENT not in pairs.caption_image


def vectors(run: Run, product: str, rows: list[tuple[str, str, list[float]]]) -> None:
    made = [
        {"item_id": item, "kind": kind, "split": "train", "vector": vector, "status": tables.OK}
        for item, kind, vector in rows
    ]
    commit(run, product, tables.EMBEDDINGS, made)


def test_a_teachers_features_are_placed_by_id_at_unit_length(run: Run) -> None:
    rows = [(f"i{n}", tables.IMAGE, [float(n + 1), 0.0]) for n in reversed(range(SIZE))]
    rows += [(f"c{n}", tables.CAPTION, [0.0, 0.0, n + 2.0]) for n in range(SIZE)]
    vectors(run, "teacher", rows)
    commit(run, "edits", tables.EDITS, [edit(tables.NEGATIVE, "i2t", "i1", "c1", text="other")])
    teacher = training_set(run, ("train",), ("edits",), teacher="teacher")[0].teacher
    assert teacher is not None and teacher.images is not None and teacher.texts is not None
    np.testing.assert_allclose(teacher.images, [[1, 0]] * SIZE)
    np.testing.assert_allclose(teacher.texts[:SIZE], [[0, 0, 1]] * SIZE)
    assert np.isnan(teacher.texts[SIZE:]).all() and len(teacher.texts) == SIZE + 1


def test_a_teacher_may_see_one_kind_only_but_then_all_of_it(run: Run) -> None:
    vectors(run, "texts", [(f"c{n}", tables.CAPTION, [1.0]) for n in range(SIZE)])
    teacher = training_set(run, ("train",), teacher="texts")[0].teacher
    assert teacher is not None and teacher.images is None
    vectors(run, "fewer", [(f"c{n}", tables.CAPTION, [1.0]) for n in range(SIZE - 1)])
    with pytest.raises(RunError, match=r"fewer: the teacher has features for 3 of 4 captions .* without is c3"):
        training_set(run, ("train",), teacher="fewer")
    vectors(run, "others", [("x1", tables.IMAGE, [1.0])])
    with pytest.raises(RunError, match="features for 0 of 4 images"):
        training_set(run, ("train",), teacher="others")


def features(path: Path, **columns: list[Any]) -> str:
    pq.write_table(pa.table(columns), path)
    return str(path)


def test_precomputed_features_are_matched_by_id_name_or_text(run: Run, tmp_path: Path) -> None:
    path = features(
        tmp_path / "f.parquet",
        item_id=["i0", None, None, "unknown"],
        name=[None, "1.png", None, None],
        text=[None, None, "  TEXT 2 ", None],
        vector=[[1.0, 0.0]] * 4,
    )
    read_features(run, "teacher", path, ("train",))
    rows = {row["item_id"]: row["kind"] for row in run.read("teacher").to_pylist()}
    assert rows == {"i0": tables.IMAGE, "i1": tables.IMAGE, "c2": tables.CAPTION}


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"item_id": ["i0"]}, "needs a column vector"),
        ({"vector": [[1.0]]}, "needs a column vector and one of item_id, name and text"),
        ({"item_id": ["i0"], "vector": [[float("nan")]]}, "row 0: features that are not finite"),
        ({"item_id": ["i4"], "vector": [[1.0]]}, "matches a picture or caption of train"),
        ({"item_id": ["i0", "i0"], "vector": [[1.0], [2.0]]}, "two rows for the item i0"),
    ],
)
def test_wrong_features_are_named(run: Run, tmp_path: Path, columns: dict[str, Any], message: str) -> None:
    with pytest.raises(RunError, match=message):
        read_features(run, "teacher", features(tmp_path / "f.parquet", **columns), ("train",))


def test_a_missing_or_broken_file_is_named(run: Run, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="there is no file"):
        read_features(run, "teacher", str(tmp_path / "none.parquet"), ("train",))
    (tmp_path / "broken.parquet").write_text("no")
    with pytest.raises(RunError, match="cannot be read as Parquet"):
        read_features(run, "teacher", str(tmp_path / "broken.parquet"), ("train",))
