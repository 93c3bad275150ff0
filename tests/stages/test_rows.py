"""Rows that raise or kill their process become status rows, and take no other row with them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from repair_ray import tables
from repair_ray.stages.rows import Row, RowStage

SCHEMA = pa.schema([("id", pa.string()), ("value", pa.int64()), ("status", pa.string()), ("reason", pa.string())])


class Double(RowStage):
    """Doubles values; remembers the batches that it was given; a value of 13 is more than it can take."""

    def setup(self, limit: int = 13) -> None:
        self.limit = limit
        self.batches: list[list[str]] = []

    def process(self, rows: list[Row]) -> list[Row]:
        self.batches.append([row["id"] for row in rows])
        if any(row["value"] == self.limit for row in rows):
            raise ValueError(f"{self.limit} is unlucky")
        return [{**row, "value": 2 * row["value"], "status": tables.OK} for row in rows]


class Fan(Double):
    """Puts out as many rows as the value says."""

    def process(self, rows: list[Row]) -> list[Row]:
        return [{**row, "status": tables.OK} for row in rows for _ in range(row["value"])]


def stage(markers: Path, kind: type[Double] = Double, poison: dict[str, str] | None = None, **arguments: Any) -> Double:
    return kind(id_column="id", schema=SCHEMA, markers=str(markers), poison=poison or {}, arguments=arguments)


def table(**values: int) -> pa.Table:
    return pa.table({"id": list(values), "value": pa.array(values.values(), pa.int64())})


def by_id(made: pa.Table) -> dict[str, tuple[int, str, str | None]]:
    return {row["id"]: (row["value"], row["status"], row["reason"]) for row in made.to_pylist()}


def test_a_good_batch_is_done_at_once(tmp_path: Path) -> None:
    double = stage(tmp_path)
    made = double(table(a=1, b=2))
    assert made.schema == SCHEMA
    assert by_id(made) == {"a": (2, "ok", None), "b": (4, "ok", None)}
    assert double.batches == [["a", "b"]]
    assert list(tmp_path.iterdir()) == [], "no marker is left"


def test_a_row_that_raises_is_alone_at_fault(tmp_path: Path) -> None:
    double = stage(tmp_path)
    assert by_id(double(table(a=1, b=13, c=3))) == {
        "a": (2, "ok", None),
        "b": (13, "error", "ValueError: 13 is unlucky"),
        "c": (6, "ok", None),
    }
    assert double.batches == [["a", "b", "c"], ["a"], ["b"], ["c"]]
    assert list(tmp_path.iterdir()) == []


def test_a_poisoned_row_raises(tmp_path: Path) -> None:
    made = by_id(stage(tmp_path, poison={"b": "raise"})(table(a=1, b=2, c=3)))
    assert made["b"] == (2, "error", "RuntimeError: injected fault")
    assert made["a"] == (2, "ok", None) and made["c"] == (6, "ok", None)


def test_arguments_reach_setup(tmp_path: Path) -> None:
    made = by_id(stage(tmp_path, limit=1)(table(a=1, b=13)))
    assert made["a"][1:] == ("error", "ValueError: 1 is unlucky") and made["b"][1] == "ok"


def test_long_messages_are_cut(tmp_path: Path) -> None:
    class Wordy(Double):
        def process(self, rows: list[Row]) -> list[Row]:
            raise KeyError("x" * 5000)

    made = stage(tmp_path, Wordy)(table(a=1))
    assert len(made["reason"][0].as_py()) < 330


def test_rows_that_an_earlier_step_has_failed_pass_by(tmp_path: Path) -> None:
    double = stage(tmp_path)
    earlier = pa.table(
        {
            "id": ["a", "b", "c", "d"],
            "value": [1, 13, 13, 4],
            "status": ["ok", "error", "rejected", None],
            "reason": [None, "broken", "no edit", None],
        }
    )
    assert by_id(double(earlier)) == {
        "a": (2, "ok", None),
        "b": (13, "error", "broken"),
        "c": (13, "rejected", "no edit"),
        "d": (8, "ok", None),
    }
    assert double.batches == [["a", "d"]]


def test_nothing_left_to_do(tmp_path: Path) -> None:
    double = stage(tmp_path)
    failed = pa.table({"id": ["a"], "value": [1], "status": ["error"], "reason": ["broken"]})
    assert by_id(double(failed)) == {"a": (1, "error", "broken")}
    assert len(double(table())) == 0
    assert double.batches == []


def test_a_stage_may_fan_out(tmp_path: Path) -> None:
    made = stage(tmp_path, Fan)(table(a=2, b=0, c=1))
    assert made["id"].to_pylist() == ["a", "a", "c"]


# One process: a stage over a fixed batch, whose result goes to standard output. Poison decides which rows kill it.
SCRIPT = """
import json, sys
import pyarrow as pa
from repair_ray.stages.rows import RowStage

class Echo(RowStage):
    def setup(self): pass
    def process(self, rows):
        if any(row["id"] == "raises" for row in rows):
            raise ValueError("bad row")
        return [{**row, "status": "ok"} for row in rows]

names = ("id", "status", "reason")
schema = pa.schema([(name, pa.string()) for name in names])
ids, poison = json.loads(sys.argv[2])
stage = Echo(id_column="id", schema=schema, markers=sys.argv[1], poison=poison, arguments={})
rows = stage(pa.table({"id": ids})).to_pylist()
print(json.dumps({row["id"]: row["status"] if row["reason"] is None else row["reason"] for row in rows}))
"""


def attempt(markers: Path, ids: list[str], poison: dict[str, str]) -> dict[str, str] | None:
    """What the batch gives in a new process, or None when it kills the process."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(markers), json.dumps([ids, poison])],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode in (0, 1) and "Traceback" not in done.stderr, done.stderr
    return json.loads(done.stdout) if done.returncode == 0 else None


def test_a_row_that_kills_its_process_is_quarantined(tmp_path: Path) -> None:
    ids, poison = ["a", "killer", "raises", "z"], {"killer": "kill"}
    assert attempt(tmp_path, ids, poison) is None
    assert len(list(tmp_path.iterdir())) == 1, "the batch has left its marker"
    assert attempt(tmp_path, ids, poison) is None
    assert len(list(tmp_path.iterdir())) == 2, "and now the row at fault: rows went one by one"
    # Another batch meanwhile is not touched by these markers.
    assert attempt(tmp_path, ids[:1], poison) == {"a": "ok"}
    assert attempt(tmp_path, ids, poison) == {
        "a": "ok",
        "killer": "killed its worker process",
        "raises": "ValueError: bad row",
        "z": "ok",
    }


def test_two_killers_cost_three_processes(tmp_path: Path) -> None:
    ids, poison = ["k1", "b", "k2"], {"k1": "kill", "k2": "kill"}
    assert [attempt(tmp_path, ids, poison) for _ in range(3)] == [None] * 3
    killed = "killed its worker process"
    assert attempt(tmp_path, ids, poison) == {"k1": killed, "b": "ok", "k2": killed}


@pytest.mark.parametrize("rows", [1, 3])
def test_a_process_that_died_of_something_else_loses_nothing(tmp_path: Path, rows: int) -> None:
    # The process is gone, but no row is at fault: the batch goes one by one, and every row is answered.
    ids = ["a", "b", "c"][:rows]
    assert attempt(tmp_path, ids, {"a": "kill"}) is None
    assert attempt(tmp_path, ids, {}) == dict.fromkeys(ids, "ok")
    assert list(tmp_path.iterdir()) == []
