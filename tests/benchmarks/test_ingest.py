"""What the ingest benchmark measures with."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.ingest import markdown, one_table
from benchmarks.processes import anonymous
from benchmarks.rows import MIB


def test_anonymous_memory_is_that_of_this_process_and_below() -> None:
    # A process of its own: this one may have memory to spare that it gives to what asks for some.
    work = "import numpy; print(flush=True); input(); held = numpy.ones(64 << 20, 'u1'); print(flush=True); input()"
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", work], text=True, **pipes) as child:
        child.stdout.readline()
        before = anonymous(os.getpid())
        print(file=child.stdin, flush=True)
        child.stdout.readline()
        after = anonymous(os.getpid())
        child.communicate("\n")
    assert 60 * MIB < after[child.pid] - before[child.pid] < 90 * MIB
    assert os.getpid() in after and 1 not in after


def test_a_table_of_bytes_comes_back_whole(tmp_path: Path) -> None:
    made = one_table(3, tmp_path / "table")
    assert (made["MiB"], made["read"]) == (3, 3)
    size = {"images": 10, "captions": 50, "seconds": 1.5, "rows/s": 40, "driver MiB": 1234, "all MiB": 2345}
    text = markdown({"sizes": [{**size, "of which workers idle MiB": 7}], "table": made})
    assert "| 10 | 50 | 1.5 | 40 | 1,234 | 2,345 | 7 |" in text
