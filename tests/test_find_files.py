"""Looking through a run while another process works in it."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

from repair_ray.run import find_files


def test_finds_and_sorts(tmp_path: Path) -> None:
    for name in ("b/manifest.json", "a/c/manifest.json", "a/other.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert find_files(tmp_path, "manifest.json") == [tmp_path / "a/c/manifest.json", tmp_path / "b/manifest.json"]
    assert find_files(tmp_path / "none", "manifest.json") == []


def test_folders_that_vanish_meanwhile(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "manifest.json").touch()
    done = threading.Event()

    def churn() -> None:
        while not done.is_set():
            (tmp_path / "half-made" / "input").mkdir(parents=True, exist_ok=True)
            shutil.rmtree(tmp_path / "half-made", ignore_errors=True)

    thread = threading.Thread(target=churn)
    thread.start()
    try:
        for _ in range(2000):
            assert find_files(tmp_path, "manifest.json") == [tmp_path / "kept" / "manifest.json"]
    finally:
        done.set()
        thread.join()
