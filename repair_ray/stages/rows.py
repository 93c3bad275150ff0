"""Row-level isolation inside a Ray Data graph.

Ray Data isolates blocks, not rows: one row that raises loses its block, and one that kills its process is retried
with its whole block. `RowStage` turns both into status rows:

* a batch that raises is done again row by row, and the row at fault carries the error;
* before a batch a marker file is written, and removed after it. A retried task that finds its marker knows that the
  batch killed its process, and goes row by row with a marker for each; a row whose marker is found was the killer, and
  becomes a status row. One such row costs two restarts of its actor, which `faults.max_restarts` bounds.

Markers are only valid within one execution of a graph: the driver clears them first.
"""

from __future__ import annotations

import hashlib
import os
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import pyarrow as pa

from repair_ray import tables
from repair_ray.observing.meter import Meter

Row = dict[str, Any]


class RowStage(ABC):
    """A callable actor class for `Dataset.map_batches`: table in, table of `schema` out.

    Subclasses load their engine in `setup` (on the worker) and answer in `process`; `failed` says which columns a row
    keeps when its processing failed. `meter` measures what goes on in both; who asks a model counts its tokens there.
    """

    def __init__(
        self,
        *,
        id_column: str,
        schema: pa.Schema,
        markers: str,
        poison: dict[str, str],
        arguments: dict[str, Any],
        figures: str | None = None,
    ) -> None:
        self.meter = Meter(Path(figures) if figures is not None else None)
        self._id = id_column
        self._schema = schema
        self._markers = Path(markers)
        self._poison = poison
        self._markers.mkdir(parents=True, exist_ok=True)
        self.setup(**arguments)
        self.meter.ready()

    def __del__(self) -> None:
        # Ray Data lets go of the class before it ends its actor.
        if "meter" in vars(self):
            self.meter.close()

    @abstractmethod
    def setup(self, *args: Any, **arguments: Any) -> None:
        """Load what the stage needs, once an actor."""

    @abstractmethod
    def process(self, rows: list[Row]) -> list[Row] | pa.Table:
        """Answer a batch: any number of output rows, each with its input's id, or a table of them. May raise."""

    def failed(self, row: Row, reason: str) -> Row:
        """The status row of an input row that raised or killed its process."""
        return {**row, "status": tables.ERROR, "reason": reason}

    def __call__(self, table: pa.Table) -> pa.Table:
        rows = table.to_pylist()
        # A row without a status has just been read; one that an earlier step has failed or rejected passes by.
        done = [row for row in rows if row.get("status") not in (None, tables.OK)]
        open_rows = [row for row in rows if row.get("status") in (None, tables.OK)]
        answers = self._measured(open_rows)
        made = [answer for answer in answers if isinstance(answer, pa.Table)]
        done += [row for answer in answers if not isinstance(answer, pa.Table) for row in answer]
        return pa.concat_tables([*made, tables.to_table(done, self._schema)] if done or not made else made)

    def _measured(self, rows: list[Row]) -> list[list[Row] | pa.Table]:
        if not rows:
            return []
        with self.meter.batch(len(rows)):
            answers = self._answer(rows)
            self.meter.count(rows_out=sum(map(len, answers)))
        return answers

    def _answer(self, rows: list[Row]) -> list[list[Row] | pa.Table]:
        marker = self._marker([row[self._id] for row in rows])
        if marker.exists():
            answers = self._one_by_one(rows, fatal=True)
        else:
            marker.touch()
            try:
                self._inject(rows)
                answers = [self.process(rows)]
            except Exception:  # not lost: the row at fault raises again alone, and carries its error
                answers = self._one_by_one(rows, fatal=False)
        marker.unlink(missing_ok=True)
        return answers

    def _one_by_one(self, rows: list[Row], *, fatal: bool) -> list[list[Row] | pa.Table]:
        self.meter.count(retries=1)
        answers: list[list[Row] | pa.Table] = []
        for row in rows:
            marker = self._marker([row[self._id], "alone"])
            if marker.exists():
                answers.append([self.failed(row, "killed its worker process")])
                continue
            if fatal:
                marker.touch()
            try:
                self._inject([row])
                answers.append(self.process([row]))
            except Exception as error:
                answers.append([self.failed(row, f"{type(error).__name__}: {str(error)[:300]}")])
            if fatal:
                marker.unlink(missing_ok=True)
        return answers

    def _inject(self, rows: list[Row]) -> None:
        for row in rows:
            fault = self._poison.get(row[self._id])
            if fault == "kill":
                os._exit(1)
            if fault == "raise":
                raise RuntimeError("injected fault")

    def _marker(self, ids: list[str]) -> Path:
        return self._markers / hashlib.sha256("\x1f".join(ids).encode()).hexdigest()[:24]
