"""The files of a search: what is in them, and the recall of an approximate index."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from repair_ray import tables
from repair_ray.config import MiningConfig
from repair_ray.run import Run, RunError
from repair_ray.stages.gallery import prepare
from repair_ray.stages.positives import Positives, answers
from tests.stages.test_mine_rules import EMBEDDINGS, build, caption, image

WIDTH = 8


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """120 images with two captions each; some texts and groups are shared."""
    rng = np.random.default_rng(0)
    images = [image(f"i{n:03}", f"g{n % 100:03}") for n in range(120)]
    captions = [caption(f"c{n:03}", f"i{n % 120:03}", f"g{n % 120 % 100:03}", f"k{n % 190}") for n in range(240)]
    vectors = rng.normal(size=(360, WIDTH))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    items = [row["image_id"] for row in images] + [row["caption_id"] for row in captions]
    made = dict(zip(items, vectors.tolist(), strict=True))
    return build(tmp_path_factory.mktemp("gallery") / "run", made, images, captions)


def prepared(run: Run, folder: Path, ids: list[str] | None = None, **mining: Any) -> Any:
    return prepare(run, MiningConfig(**mining), EMBEDDINGS, folder, ids=ids, seed=5)


def test_the_files_hold_the_embeddings(run: Run, tmp_path: Path) -> None:
    files = prepared(run, tmp_path)
    assert files.facts == {"rows": {"image": 120, "caption": 240}, "width": WIDTH}
    table = {row["item_id"]: row["vector"] for row in run.read(EMBEDDINGS).to_pylist()}
    for kind in (tables.IMAGE, tables.CAPTION):
        ids = files.ids(kind).to_pylist()
        assert ids == sorted(item for item in table if item[0] == kind[0])
        assert np.array_equal(files.vectors(kind), np.array([table[item] for item in ids], np.float32))


def test_answers_by_place_are_those_by_id(run: Run, tmp_path: Path) -> None:
    positives = Positives.read(run, "train")
    fold = [f"i{n:03}" for n in range(0, 120, 2)] + [f"c{n:03}" for n in range(0, 240, 3)]
    for ids in (None, fold):
        files = prepared(run, tmp_path / f"{ids is None}", ids)
        images, captions = files.ids(tables.IMAGE).to_pylist(), files.ids(tables.CAPTION).to_pylist()
        for direction, asking, answering in (("i2t", images, captions), ("t2i", captions, images)):
            found = files.answers(direction)
            assert len(found) == len(asking)
            for query, own in zip(asking, found, strict=True):
                assert {answering[place] for place in own} == positives.of(direction, query) & set(answering)


def test_an_item_that_is_not_known_is_named(run: Run) -> None:
    import pyarrow as pa

    with pytest.raises(RunError, match="stranger was embedded, and is no usable item"):
        answers(run, "train", pa.array(["i001", "stranger"]), pa.array(["c001"]))


def test_finished_files_are_kept(run: Run, tmp_path: Path) -> None:
    first = prepared(run, tmp_path)
    before = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert prepared(run, tmp_path).facts == first.facts
    assert {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == before
    # Without its facts, which come last, nothing counts as finished.
    (tmp_path / "search.json").unlink()
    assert prepared(run, tmp_path).facts == first.facts
    assert (tmp_path / "image.npy").stat().st_mtime_ns > before["image.npy"]


def test_the_recall_of_an_approximate_index_is_measured(run: Run, tmp_path: Path) -> None:
    all_lists = prepared(run, tmp_path / "all", index="ivf", ivf_lists=8, ivf_probes=8).facts
    assert all_lists["recall"] == {"i2t": 1.0, "t2i": 1.0} and all_lists["lists"] == {"i2t": 8, "t2i": 8}
    assert all_lists["sampled"] == {"i2t": 120, "t2i": 240}
    some = prepared(run, tmp_path / "some", index="ivf", ivf_lists=8, ivf_probes=3, min_recall=0.0).facts
    assert 0.3 < some["recall"]["i2t"] < 1 and 0.3 < some["recall"]["t2i"] < 1
    with pytest.raises(RunError, match=r"less than mining\.min_recall=0\.99: raise mining\.ivf_probes \(it is 1 of 8"):
        prepared(run, tmp_path / "few", index="ivf", ivf_lists=8, ivf_probes=1, min_recall=0.99)
    assert not (tmp_path / "few" / "search.json").exists()
