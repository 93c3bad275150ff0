"""Mining on real Ray: whole, split over actors, in pieces, and stopped on the way, against a full sort."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from repair_ray import tables
from repair_ray.config import parse_config
from repair_ray.run import Run, RunError
from repair_ray.stages import sink
from repair_ray.stages.mine import mine
from tests.stages.test_mine_rules import EMBEDDINGS, build, caption, image

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("local_ray")]

IMAGES, CAPTIONS, K = 60, 150, 4


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Vectors of +-1/2 in four places: all scores are exact, and most are ties."""
    rng = np.random.default_rng(0)
    images = [image(f"i{n:03}", f"g{n:03}") for n in range(IMAGES)]
    captions = [caption(f"c{n:03}", f"i{n % IMAGES:03}", f"g{n % IMAGES:03}", f"k{n % 140}") for n in range(CAPTIONS)]
    vectors = rng.choice([-0.5, 0.5], (IMAGES + CAPTIONS, 4)).tolist()
    items = [row["image_id"] for row in images] + [row["caption_id"] for row in captions]
    folder = tmp_path_factory.mktemp("prepared") / "run"
    build(folder, dict(zip(items, vectors, strict=True)), images, captions)
    return folder


def mined(
    run: Run, pool: dict[str, Any] | None = None, faults: dict[str, Any] | None = None, **mining: Any
) -> pa.Table:
    pool = {"rows_per_block": 16, "num_cpus": 0.5, **(pool or {})}
    config = {"data": {"train": "none", "test": "none"}, "mining": {"k": K, **mining}, "pool": pool}
    mine(run, parse_config({**config, "faults": faults or {}}), "failures", EMBEDDINGS)
    return run.read("failures")


def by_full_sort(run: Run) -> list[tuple[str, str, str, int, float, str]]:
    vectors = {row["item_id"]: np.array(row["vector"]) for row in run.read(EMBEDDINGS).to_pylist()}
    images = {f"i{n:03}": {f"c{m:03}" for m in range(CAPTIONS) if m % IMAGES == n} for n in range(IMAGES)}
    # Captions 140 to 149 have the texts of captions 0 to 9.
    owners = {f"c{m:03}": {f"i{m % IMAGES:03}"} for m in range(CAPTIONS)}
    for low in range(10):
        both = owners[f"c{low:03}"] | owners[f"c{low + 140:03}"]
        for name in (f"c{low:03}", f"c{low + 140:03}"):
            owners[name] = both
            for owner in both:
                images[owner].add(name)
    made = []
    for direction, own, gallery in (("i2t", images, sorted(owners)), ("t2i", owners, sorted(images))):
        for query in sorted(own):
            score = {item: float(vectors[query] @ vectors[item]) for item in gallery}
            order = sorted(gallery, key=lambda item: (-score[item], item))
            truth = min(own[query], key=lambda item: (-score[item], item))
            wrong = [(rank, item) for rank, item in enumerate(order, 1) if item not in own[query]][:K]
            made += [(direction, query, item, rank, score[item], truth) for rank, item in wrong]
    return made


def rows_of(table: pa.Table) -> list[tuple[Any, ...]]:
    names = ("direction", "query_id", "candidate_id", "rank", "score", "ground_truth_id")
    return list(zip(*(table[name].to_pylist() for name in names), strict=True))


def test_one_actor_equals_a_full_sort(run: Run) -> None:
    made = mined(run)
    assert rows_of(made) == by_full_sort(run)
    assert set(made["status"].to_pylist()) == {tables.OK}
    manifest = run.manifest("failures") or {}
    assert manifest["search"] == {"index": "flat"} and manifest["input_rows"] == IMAGES + CAPTIONS
    assert not (run.path("failures") / "half-made").exists()


@pytest.mark.parametrize("shards", [2, 3])
def test_shards_are_the_whole(run: Run, shards: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # Committed in many pieces on the way.
    monkeypatch.setattr(sink, "PIECE_BYTES", 2_000)
    assert rows_of(mined(run, shards=shards)) == by_full_sort(run)


def test_a_worker_that_dies_and_a_run_that_goes_on(run: Run) -> None:
    # Both of the workers that merge die on their row, too often for the first try.
    faults = {"poison": {"c100": "kill"}, "max_restarts": 0}
    with pytest.raises(RunError, match=r"died more often than faults\.max_restarts"):
        mined(run, shards=2, faults=faults)
    assert list((run.path("failures") / "half-made" / "search").glob("*.npy"))
    assert rows_of(mined(run, pool={"actors": 2})) == by_full_sort(run)


def test_an_approximate_index_tells_its_recall(run: Run) -> None:
    made = mined(run, index="ivf", ivf_lists=4, ivf_probes=4)
    facts = (run.manifest("failures") or {})["search"]
    assert facts["index"] == "ivf" and facts["probes"] == 4 and set(facts["recall"]) == {"i2t", "t2i"}
    assert len(made) == len(by_full_sort(run))
    with pytest.raises(RunError, match=r"mining\.index was 'ivf', is now 'flat'"):
        mined(run)


def test_speed_alone_changes_no_recipe(run: Run) -> None:
    first = mined(run)
    assert mined(run, memory_mb=7, shards=2, pool={"actors": 2}).equals(first)
