"""The part files of a table that is written piece by piece, and the counts of its rows."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from repair_ray.tables.files import Parts, StatusCounts

SCHEMA = pa.schema([("n", pa.int64())])


def numbers(*found: int) -> pa.Table:
    return pa.table({"n": list(found)}, SCHEMA)


def test_parts_are_filled_across_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("repair_ray.tables.files.MAX_ROWS_PER_FILE", 3)
    with Parts(tmp_path, SCHEMA) as parts:
        for piece in (numbers(0, 1), numbers(), numbers(2, 3, 4, 5, 6, 7)):
            parts.write(piece)
    assert parts.rows == 8
    made = {path.name: pq.read_table(path)["n"].to_pylist() for path in sorted(tmp_path.iterdir())}
    assert made == {"part-00000.parquet": [0, 1, 2], "part-00001.parquet": [3, 4, 5], "part-00002.parquet": [6, 7]}


def test_no_row_is_one_empty_part(tmp_path: Path) -> None:
    with Parts(tmp_path, SCHEMA):
        pass
    assert pq.read_table(tmp_path / "part-00000.parquet").schema == SCHEMA


def test_a_part_that_was_not_finished_does_not_appear(tmp_path: Path) -> None:
    with pytest.raises(InterruptedError), Parts(tmp_path, SCHEMA) as parts:
        parts.write(numbers(1))
        raise InterruptedError
    assert not list(tmp_path.glob("*.parquet"))


def test_rare_reasons_are_counted_together() -> None:
    rows = [{"status": "rejected", "reason": f"r{min(n, 60)}"} for n in range(70)]
    counts = StatusCounts()
    for start in range(0, 70, 9):
        counts.add(pa.Table.from_pylist(rows[start : start + 9]))
    assert counts.rows == 70 and counts.statuses == {"rejected": 70} and sum(counts.reasons.values()) == 70
    assert len(counts.reasons) == 51 and counts.reasons["r60"] == 10 and counts.reasons["11 other reasons"] == 11


def test_only_errors_count_as_errors() -> None:
    counts = StatusCounts()
    rows = [("ok", None), ("error", "a"), ("error", "a"), ("error", None), ("rejected", "a")]
    counts.add(pa.Table.from_pylist([{"status": status, "reason": reason} for status, reason in rows]))
    assert counts.errors == {"a": 2, None: 1} and counts.statuses == {"ok": 1, "error": 3, "rejected": 1}
    assert counts.reasons == {"a": 3}
