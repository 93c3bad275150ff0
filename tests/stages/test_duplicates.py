"""Equal pictures within a split share a group; across splits they are refused, left out, or let through."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from repair_ray import tables
from repair_ray.config import Config, ConfigError, DataConfig, parse_config
from repair_ray.run import Recipe, Run, RunError
from repair_ray.stages.duplicates import find_duplicates, find_near_embeddings, settle_duplicates

TRAINED = ("train",)
# One bit apart: the last digits 0 and 1. Far: f's.
NEAR, NEARER, FAR = "0" * 16, "0" * 15 + "1", "f" * 16


def image(identity: str, split: str, pixels: str, perceptual: str | None = None, **more: Any) -> dict[str, Any]:
    row = {"image_id": identity, "split": split, "group_id": f"g-{identity}", "source": f"{identity}.jpg:0"}
    return {**row, "pixel_hash": pixels, "perceptual_hash": perceptual, "status": tables.OK, **more}


def settled(rows: list[dict[str, Any]], **data: Any) -> dict[str, dict[str, Any]]:
    made = settle_duplicates(tables.to_table(rows, tables.IMAGES.schema), DataConfig(path="x", **data), TRAINED)
    assert made.schema == tables.IMAGES.schema
    return {row["image_id"]: row for row in made.to_pylist()}


def test_equal_pixels_join_whole_groups_within_a_split_only() -> None:
    rows = [
        image("a", "train", "p"),
        image("b", "train", "q", group_id="g-a"),
        image("c", "train", "q"),
        image("d", "train", "r"),
        image("e", "validation", "s"),
        image("f", "validation", "s"),
        image("bad", "train", "", status=tables.ERROR, pixel_hash=None),
    ]
    made = settled(rows)
    assert [made[i]["group_id"] for i in "abcdef"] == ["g-a", "g-a", "g-a", "g-d", "g-e", "g-e"]
    assert made["bad"]["group_id"] == "g-bad"


def test_a_training_picture_that_is_evaluated_too() -> None:
    rows = [image("a", "train", "p"), image("b", "test", "p"), image("c", "train", "q"), image("d", "validation", "q")]
    with pytest.raises(RunError, match=r"1 of split train in split test.*a\.jpg:0 and b\.jpg:0.*data\.overlap=drop"):
        settled(rows)
    dropped = settled(rows, overlap="drop")
    assert (dropped["a"]["status"], dropped["a"]["reason"]) == (tables.REJECTED, "the same picture is in split test")
    assert dropped["c"]["reason"] == "the same picture is in split validation"
    assert dropped["b"]["status"] == dropped["d"]["status"] == tables.OK
    assert {row["status"] for row in settled(rows, overlap="allow").values()} == {tables.OK}


def test_evaluated_splits_may_share_pictures_with_each_other() -> None:
    rows = [image("a", "train", "o"), image("b", "test", "p"), image("c", "validation", "p")]
    assert {row["status"] for row in settled(rows).values()} == {tables.OK}


def test_near_duplicates_are_the_same_only_when_told() -> None:
    rows = [
        image("a", "train", "p", NEAR),
        image("b", "train", "q", NEARER),
        image("c", "train", "r", FAR),
        image("d", "test", "s", NEARER),
    ]
    assert len({row["group_id"] for row in settled(rows).values()}) == 4
    made = settled(rows, near_same=True, overlap="drop")
    assert [made[i]["group_id"] for i in "abc"] == ["g-a", "g-a", "g-c"]
    assert [made[i]["status"] for i in "abcd"] == [tables.REJECTED, tables.REJECTED, tables.OK, tables.OK]


def test_a_copy_of_the_same_name_in_another_split_is_the_same(tmp_path: Path) -> None:
    rows = [
        image("a", "train", "p", NEAR, name="1.jpg"),
        image("b", "test", "q", NEARER, name="1.jpg"),
        image("c", "train", "r", NEAR, name="2.jpg"),
        image("d", "test", "s", FAR, name="2.jpg"),
        image("e", "train", "t", None, name="3.jpg"),
        image("f", "test", "u", None, name="3.jpg"),
    ]
    made = settled(rows, overlap="drop")
    assert [made[i]["status"] for i in "abcdef"] == [tables.REJECTED, *[tables.OK] * 5]
    assert {row["status"] for row in settled(rows, near_bits=None).values()} == {tables.OK}
    run, config = _run(tmp_path, rows, [])
    find_duplicates(run, config, "images", "captions")
    named = [row for row in run.read("data/duplicates").to_pylist() if row["way"] == "name"]
    assert [(row["item_id"], row["other_id"], row["distance"]) for row in named[::2]] == [
        ("a", "b", 1.0),
        ("c", "d", 64.0),
        ("e", "f", 64.0),
    ]


def test_near_same_needs_bits() -> None:
    with pytest.raises(ConfigError, match=r"data\.near_bits"):
        parse_config({"data": {"path": "x", "near_same": True, "near_bits": None}})


def _run(folder: Path, images: list[dict[str, Any]], captions: list[dict[str, Any]]) -> tuple[Run, Config]:
    run = Run(folder)
    for name, kind, rows in (("images", tables.IMAGES, images), ("captions", tables.CAPTIONS, captions)):
        run.path(name).mkdir(parents=True)
        run.commit(name, Recipe({}), kind, tables.to_table(rows, kind.schema), 0.0)
    return run, parse_config({"data": {"path": "x", "near_cosine": 0.9}})


def test_the_table_names_for_each_item_its_nearest_other(tmp_path: Path) -> None:
    images = [
        image("a", "train", "p", NEAR),
        image("b", "train", "q", NEARER),
        image("c", "test", "p", NEAR),
        image("d", "test", "r", FAR),
        image("e", "test", "s", FAR),
    ]
    texts = [
        ("k1", "train", "g1", "x"),
        ("k2", "train", "g1", "x"),
        ("k3", "test", "g2", "x"),
        ("k4", "test", "g3", "y"),
    ]
    captions = [
        {
            "caption_id": name,
            "image_id": "a",
            "split": split,
            "group_id": group,
            "position": 0,
            "text": key,
            "text_key": key,
            "status": tables.OK,
        }
        for name, split, group, key in texts
    ]
    run, config = _run(tmp_path, images, captions)
    find_duplicates(run, config, "images", "captions")
    found = {
        (row["item_id"], row["way"]): (row["other_id"], row["distance"])
        for row in run.read("data/duplicates").to_pylist()
    }
    assert found == {
        ("a", "pixels"): ("c", 0.0),
        ("c", "pixels"): ("a", 0.0),
        ("a", "perceptual"): ("b", 1.0),
        ("b", "perceptual"): ("a", 1.0),
        ("d", "perceptual"): ("e", 0.0),
        ("e", "perceptual"): ("d", 0.0),
        # Two captions of one picture say the same: nothing to tell.
        ("k1", "text"): ("k3", 0.0),
        ("k3", "text"): ("k1", 0.0),
    }
    facts = (run.manifest("data/duplicates") or {})["duplicates"]
    assert {"kind": "image", "way": "pixels", "split": "train", "other_split": "test", "count": 1} in facts


def test_near_embeddings_by_hand(tmp_path: Path) -> None:
    run, config = _run(tmp_path, [image("a", "train", "p")], [])
    angles = {"t1": 0.0, "t2": 0.6, "t3": 2.0}
    rows = [
        {"item_id": name, "kind": "image", "split": "train", "vector": [np.cos(a), np.sin(a)], "status": tables.OK}
        for name, a in angles.items()
    ]
    rows += [{"item_id": "e", "kind": "image", "split": "test", "vector": [1.0, 0.0], "status": tables.OK}]
    run.path("embeddings").mkdir()
    run.commit("embeddings", Recipe({}), tables.EMBEDDINGS, tables.to_table(rows, tables.EMBEDDINGS.schema), 0.0)
    find_near_embeddings(run, config, "near", "embeddings", TRAINED)
    (only,) = run.read("near").to_pylist()
    assert (only["item_id"], only["other_id"], only["way"]) == ("t1", "e", "embedding")
    assert only["distance"] == pytest.approx(0.0, abs=1e-6)
