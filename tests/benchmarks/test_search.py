"""What the search benchmark measures with, and on."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
import pytest

from benchmarks import search
from benchmarks.processes import proportional
from benchmarks.rows import MIB
from benchmarks.search import EMBEDDINGS, Memory, make_run
from repair_ray import tables
from repair_ray.run import Run, read_json
from repair_ray.stages.positives import Positives
from repair_ray.stages.vectors import read_embeddings


def test_held_and_mapped_memory_count(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(64 * MIB))
    watched = Memory(tmp_path / "peak.json")
    with watched:
        held = np.ones(64 * MIB, np.uint8)
        mapped = np.memmap(tmp_path / "file", mode="r")
        assert held[-1] == 1 and mapped.sum() == 0
        time.sleep(1.2)
    assert 120 * MIB < watched.peak < 200 * MIB
    kept = (read_json(tmp_path / "peak.json") or {})["peak"]
    assert kept == watched.peak
    assert Memory(tmp_path / "peak.json").peak == kept, "the peak of a killed process counts"
    assert proportional(os.getpid()) > 0


def test_the_run_has_unit_vectors_and_one_image_a_caption(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "BLOCK", 16)
    run = Run(tmp_path)
    make_run(run, 50, 20)
    for kind, count in ((tables.IMAGE, 20), (tables.CAPTION, 50)):
        found = read_embeddings(run, EMBEDDINGS, kind, "train")
        assert found.ids == [f"{kind}-{n:08d}" for n in range(count)]
        assert found.features.shape == (count, search.WIDTH)
        np.testing.assert_allclose(np.linalg.norm(found.features, axis=1), 1, atol=1e-5)
        assert len(np.unique(found.features[:, 0])) == count
    positives = Positives.read(run, "train")
    assert positives.of("t2i", "caption-00000047") == {"image-00000007"}
    assert positives.of("i2t", "image-00000007") == {f"caption-000000{n:02d}" for n in (7, 27, 47)}
    before = (run.path(EMBEDDINGS) / "manifest.json").stat().st_mtime_ns
    make_run(run, 50, 20)
    assert (run.path(EMBEDDINGS) / "manifest.json").stat().st_mtime_ns == before


def test_the_searcher_finds_what_plain_faiss_finds() -> None:
    speed, memory = search.compare(200, 300, 1, 1)
    assert (speed["name"], speed["peer_name"], speed["n"]) == ("search 200 x 300 x 512", "faiss.IndexFlatIP", 1)
    assert memory["unit"] == "MiB"
