"""The files of a table, and how many of its rows came to what, for tables that are written piece by piece."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from repair_ray.tables import ERROR

MAX_ROWS_PER_FILE = 1_000_000
MAX_REASONS = 50


class Parts:
    """The part files of a table: rows are appended, and each part appears when it is whole."""

    def __init__(self, folder: Path, schema: pa.Schema) -> None:
        self.rows = 0
        self._folder, self._schema = folder, schema
        self._writer: pq.ParquetWriter | None = None
        self._held = self._number = 0

    def __enter__(self) -> Parts:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None and self._number == 0 and self._writer is None:
            self._append(self._schema.empty_table())
        self._close(keep=kind is None)

    def write(self, table: pa.Table) -> None:
        start = 0
        while start < len(table):
            piece = table.slice(start, MAX_ROWS_PER_FILE - self._held)
            self._append(piece)
            start += len(piece)
            if self._held == MAX_ROWS_PER_FILE:
                self._close(keep=True)

    def _append(self, piece: pa.Table) -> None:
        if self._writer is None:
            self._writer = pq.ParquetWriter(self._path.with_suffix(".tmp"), self._schema)
        self._writer.write_table(piece)
        self._held += len(piece)
        self.rows += len(piece)

    def _close(self, *, keep: bool) -> None:
        if self._writer is None:
            return
        self._writer.close()
        self._writer = None
        if keep:
            os.replace(self._path.with_suffix(".tmp"), self._path)
        self._number, self._held = self._number + 1, 0

    @property
    def _path(self) -> Path:
        return self._folder / f"part-{self._number:05d}.parquet"


class StatusCounts:
    """Rows by status, and by reason where there is one, over tables that are added one after another."""

    def __init__(self) -> None:
        self.rows = 0
        self._counts: dict[str, Counter[str]] = {"status": Counter(), "reason": Counter()}
        self.errors: Counter[str | None] = Counter()

    def add(self, table: pa.Table) -> None:
        self.rows += len(table)
        for column, counter in self._counts.items():
            counter.update(_counted(table[column]) if column in table.column_names else {})
        if {"status", "reason"} <= set(table.column_names):
            self.errors.update(_counted(table.filter(pc.equal(table["status"], ERROR))["reason"]))

    @property
    def statuses(self) -> dict[str, int]:
        return {name: count for name, count in self._counts["status"].items() if name}

    @property
    def reasons(self) -> dict[str, int]:
        """The most frequent first; rare reasons beyond the 50th are counted as one."""
        counts = {name: count for name, count in self._counts["reason"].items() if name}
        found = sorted(counts.items(), key=lambda item: -item[1])
        reasons = dict(found[:MAX_REASONS])
        if found[MAX_REASONS:]:
            reasons[f"{len(found) - MAX_REASONS} other reasons"] = sum(count for _, count in found[MAX_REASONS:])
        return reasons


def _counted(column: pa.ChunkedArray) -> dict[Any, int]:
    return {item["values"]: item["counts"] for item in column.value_counts().to_pylist()}
