"""What the progress of a graph counts."""

from __future__ import annotations

import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from repair_ray.config import FaultConfig
from repair_ray.observing.figures import Watched
from repair_ray.run import Clock
from repair_ray.scheduling.stall import Stall
from repair_ray.stages.watch import Watch


def test_input_rows_count_and_not_what_each_fans_out_to(tmp_path: Path) -> None:
    for name, queries in (("a", ["q", "q", "r"]), ("b", ["s", "s", "s", "s"])):
        pq.write_table(pa.table({"query_id": queries}), tmp_path / f"{name}.parquet")
    (tmp_path / "c.parquet").write_bytes(b"PAR1 still being written")
    seen: list[int] = []
    stall = Stall("failures", [], FaultConfig())
    clock = Clock(tmp_path / "t")
    figures = tmp_path / "figures"
    watched = Watched.read(figures, [])
    tell = lambda name, done, total: seen.append(done)  # noqa: E731
    with Watch(tmp_path, "query_id", "failures", 9, tell, clock, stall, figures, watched):
        deadline = time.monotonic() + 20
        while len(seen) < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
    assert seen[:2] == [0, 3]
