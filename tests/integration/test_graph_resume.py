"""What one Ray Data graph does when it was stopped at a chosen place, and when a row kills a later step."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import ray

from repair_ray import tables
from repair_ray.config import FaultConfig, PoolConfig
from repair_ray.run import Recipe, Run, RunError
from repair_ray.stages.graph import Step, run_graph
from repair_ray.stages.rows import Row, RowStage

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("local_ray")]

NUMBERS = tables.Table(
    "numbers",
    pa.schema([("id", pa.string()), ("value", pa.int64()), ("status", pa.string()), ("reason", pa.string())]),
    "id",
    ("id",),
)
ROWS = 40
POOL = PoolConfig(rows_per_block=8, num_cpus=0.5)


class AddOne(RowStage):
    """Adds one, and keeps a note of each row that it was given; `deadly` is the value that it cannot take."""

    def setup(self, notes: str = "", deadly: int = -1, padding: int = 0) -> None:
        self.notes, self.deadly, self.padding = notes, deadly, padding

    def process(self, rows: list[Row]) -> list[Row]:
        if any(row["value"] == self.deadly for row in rows):
            os._exit(1)
        if self.notes:
            with Path(self.notes).open("a") as notes:
                notes.writelines(f"{row['id']}\n" for row in rows)
        return [
            {**row, "value": row["value"] + 1, "status": tables.OK, "reason": os.urandom(self.padding).hex() or None}
            for row in rows
        ]


# The workers cannot import a test module, so its classes travel whole.
ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])


def _graph(run: Run, *steps: dict[str, Any], restarts: int = 2, finish: Any = None) -> pa.Table:
    run_graph(
        run,
        "numbers",
        Recipe({}),
        NUMBERS,
        [Step(AddOne, NUMBERS.schema, arguments, POOL) for arguments in steps],
        lambda: tables.to_table([{"id": f"{n:03}", "value": n} for n in range(ROWS)], NUMBERS.schema),
        faults=FaultConfig(max_restarts=restarts),
        finish=finish,
    )
    return run.read("numbers")


def test_a_row_that_kills_the_second_step(tmp_path: Path) -> None:
    # The first step has added one, so the row of 20 arrives as 21.
    made = _graph(Run(tmp_path), {}, {"deadly": 21}).to_pylist()
    assert len(made) == ROWS
    for number, row in enumerate(made):
        if number == 20:
            assert (row["status"], row["reason"]) == (tables.ERROR, "killed its worker process")
        else:
            assert (row["value"], row["status"]) == (number + 2, tables.OK)


def test_what_is_done_is_not_done_again(tmp_path: Path) -> None:
    run, notes = Run(tmp_path / "run"), tmp_path / "notes"
    with pytest.raises(RunError, match=r"died more often than faults\.max_restarts"):
        _graph(run, {"notes": str(notes), "deadly": ROWS - 1}, restarts=0)
    kept = {row["id"] for row in _sunk(run)}
    assert kept, "blocks before the deadly one have reached the sink"
    notes.unlink()
    made = _graph(run, {"notes": str(notes)}).to_pylist()
    assert [row["value"] for row in made] == list(range(1, ROWS + 1))
    assert sorted(notes.read_text().split()) == sorted({row["id"] for row in made} - kept)


def test_a_graph_stopped_before_its_commit_only_commits(tmp_path: Path) -> None:
    run, notes = Run(tmp_path / "run"), tmp_path / "notes"

    def stop(table: pa.Table) -> pa.Table:
        raise InterruptedError

    with pytest.raises(InterruptedError):
        _graph(run, {"notes": str(notes)}, finish=stop)
    notes.unlink()
    made = _graph(run, {"notes": str(notes)})
    assert made["value"].to_pylist() == list(range(1, ROWS + 1))
    assert not notes.exists()
    assert not list(run.folder.rglob("half-made"))


def test_a_full_disk_is_named_and_mended(tmp_path: Path) -> None:
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(tmp_path)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small disk is not allowed here")
    try:
        run = Run(tmp_path / "run")
        with pytest.raises(RunError, match=r"the disk of .* is full"):
            _graph(run, {"padding": 60_000})
        subprocess.run(["mount", "-o", "remount,size=32m", str(tmp_path)], check=True)
        made = _graph(run, {"padding": 60_000})
        assert made["value"].to_pylist() == list(range(1, ROWS + 1))
    finally:
        subprocess.run(["umount", "--lazy", str(tmp_path)], check=True)


def _sunk(run: Run) -> list[Row]:
    import pyarrow.parquet as pq

    files = sorted((run.path("numbers") / "half-made" / "rows").glob("*.parquet"))
    return [row for file in files for row in pq.read_table(file).to_pylist()]
