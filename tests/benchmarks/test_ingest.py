"""What the ingest benchmark measures with."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from benchmarks.ingest import MIB, markdown, one_table
from benchmarks.processes import anonymous


def test_anonymous_memory_is_that_of_this_process_and_below() -> None:
    before = anonymous(os.getpid())[os.getpid()]
    held = np.ones(64 * MIB, np.uint8)
    after = anonymous(os.getpid())[os.getpid()]
    assert 60 * MIB < after - before < 90 * MIB
    assert held[-1] == 1
    assert 1 not in anonymous(os.getpid())


def test_a_table_of_bytes_comes_back_whole(tmp_path: Path) -> None:
    made = one_table(3, tmp_path / "table")
    assert (made["MiB"], made["read"]) == (3, 3)
    size = {"images": 10, "captions": 50, "seconds": 1.5, "rows/s": 40, "driver MiB": 1234, "all MiB": 2345}
    text = markdown({"sizes": [{**size, "of which workers idle MiB": 7}], "table": made})
    assert "| 10 | 50 | 1.5 | 40 | 1,234 | 2,345 | 7 |" in text
