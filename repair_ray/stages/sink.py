"""From what a graph has written to a committed table, piece by piece: checked, sorted, finished.

A graph's files hold its rows in the order in which they came. What is small enough is sorted at once; else its rows
are first dealt out to files that each hold a stretch of the order, so that no more than one stretch is in memory.
"""

from __future__ import annotations

import shutil
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from repair_ray.config import FaultConfig
from repair_ray.run import RunError
from repair_ray.tables import Table
from repair_ray.tables.files import StatusCounts

# Of one sorted piece, as Parquet counts them. Strings may take several times as much once they are read.
PIECE_BYTES = 64 * 2**20
# Files that are written at a time while rows are dealt out; larger tables have larger pieces.
MAX_PIECES = 256
_BATCH_ROWS = 65_536
_BUFFER_BYTES = 2**20
# Of the rows, one in so many says where the pieces are cut.
_SAMPLED = 16


@dataclass(frozen=True)
class ByPiece:
    """A last step over rows that needs all of them in `columns` alone.

    `decide` sees these columns of all rows, and returns what is done to each piece of whole rows.
    """

    columns: tuple[str, ...]
    decide: Callable[[pa.Table], Callable[[pa.Table], pa.Table]]


def read_columns(files: Sequence[Path], schema: pa.Schema, columns: Sequence[str]) -> Iterator[pa.Table]:
    """Some columns of all rows, batch by batch."""
    wanted = pa.schema([schema.field(name) for name in columns])
    for path in files:
        with pq.ParquetFile(path, buffer_size=_BUFFER_BYTES) as file:
            for batch in file.iter_batches(_BATCH_ROWS, columns=list(columns)):
                yield pa.Table.from_batches([batch]).select(list(columns)).cast(wanted)


def reconcile(files: Sequence[Path], source: Path, kind: Table, product: str) -> None:
    """Every row that was asked for has come, and none twice; ids are compared by 64-bit hashes.

    Raises:
        RunError: not so.
    """
    row_id = kind.schema.names[0]  # of the output row, where a stage fans out
    asked = np.unique(_hashes(read_columns([source], pq.read_schema(source), [kind.id_column]), kind.id_column))
    found = np.unique(_hashes(read_columns(files, kind.schema, [kind.id_column]), kind.id_column))
    missing = len(np.setdiff1d(asked, found, assume_unique=True))
    hashes = np.sort(_hashes(read_columns(files, kind.schema, [row_id]), row_id))
    suspects = np.unique(hashes[1:][hashes[1:] == hashes[:-1]])
    if len(suspects):
        doubled = _doubled(read_columns(files, kind.schema, [row_id]), row_id, suspects)
        if doubled:
            raise RunError(f"{product}: {doubled} rows came twice; start again with --redo {product}")
    if missing or len(found) > len(asked):
        raise RunError(f"{product}: {missing} of {len(asked)} rows never arrived; start again with --redo {product}")


def _hashes(batches: Iterator[pa.Table], column: str) -> np.ndarray:
    found = [_hash(batch[column]) for batch in batches]
    return np.concatenate(found) if found else np.zeros(0, np.uint64)


def _hash(column: pa.ChunkedArray) -> np.ndarray:
    return pd.util.hash_array(column.to_numpy(), categorize=False)


def _doubled(batches: Iterator[pa.Table], column: str, suspects: np.ndarray) -> int:
    """Rows beyond the first with the same id, among those whose hashes came more than once."""
    ids = [
        identity
        for batch in batches
        for identity in batch[column].filter(pa.array(np.isin(_hash(batch[column]), suspects))).to_pylist()
    ]
    return len(ids) - len(set(ids))


def check_counts(counts: StatusCounts, faults: FaultConfig, product: str, what: str = "rows") -> None:
    """Raises `RunError` when more rows failed than `faults.max_error_rate` allows."""
    bad = counts.errors.total()
    if bad > faults.max_error_rate * counts.rows:
        ((worst, _),) = counts.errors.most_common(1)
        raise RunError(
            f"{product}: {bad} of {counts.rows} {what} failed, more than "
            f"faults.max_error_rate={faults.max_error_rate:g}; most often: {worst}. "
            f"Mend the cause and start again with --redo {product}"
        )


def check_errors(made: pa.Table, faults: FaultConfig, product: str, what: str = "rows") -> None:
    """Raises `RunError` when more rows failed than `faults.max_error_rate` allows."""
    counts = StatusCounts()
    counts.add(made)
    check_counts(counts, faults, product, what)


def sorted_pieces(files: Sequence[Path], kind: Table, work: Path) -> Iterator[pa.Table]:
    """All rows of a table's files, sorted as the table is, in pieces of which one is in memory at a time.

    Args:
        work: a folder that is made for what does not fit, and removed.
    """
    size = sum(_size(path) for path in files)
    order = [(column, "ascending") for column in kind.sort_by]
    if size <= PIECE_BYTES:
        yield pa.concat_tables(_whole(path, kind) for path in files).sort_by(order)
        return
    keys = list(kind.sort_by[:2])
    cuts = _cuts(files, kind, keys, min(MAX_PIECES, -(-size // PIECE_BYTES)))
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    paths = [work / f"{number:05d}.arrow" for number in range(len(cuts) + 1)]
    writers = [pa.ipc.new_file(path, kind.schema) for path in paths]
    for path in files:
        table = _whole(path, kind).sort_by(order)
        columns = [table[key] for key in keys]
        places = [_first_not_below(columns, cut) for cut in cuts]
        for writer, start, end in zip(writers, [0, *places], [*places, len(table)], strict=True):
            if end > start:
                writer.write_table(table.slice(start, end - start))
    for writer in writers:
        writer.close()
    for path in paths:
        with pa.OSFile(str(path)) as file:
            yield pa.ipc.open_file(file).read_all().sort_by(order)
        path.unlink()
    shutil.rmtree(work)


def _whole(path: Path, kind: Table) -> pa.Table:
    return pq.ParquetFile(path).read(columns=kind.schema.names).select(kind.schema.names).cast(kind.schema)


def _size(path: Path) -> int:
    metadata = pq.read_metadata(path)
    return sum(metadata.row_group(number).total_byte_size for number in range(metadata.num_row_groups))


def _cuts(files: Sequence[Path], kind: Table, keys: Sequence[str], pieces: int) -> list[tuple[Any, ...]]:
    """Where to cut the order of the rows by their first sort columns, so that the pieces are about alike."""
    sampled = sorted(
        key
        for batch in read_columns(files, kind.schema, keys)
        for key in zip(*(batch.take(np.arange(0, len(batch), _SAMPLED))[k].to_pylist() for k in keys), strict=True)
    )
    return sorted({sampled[len(sampled) * number // pieces] for number in range(1, pieces)})


def _first_not_below(columns: Sequence[pa.ChunkedArray], cut: tuple[Any, ...]) -> int:
    rows = range(len(columns[0]))
    return bisect_left(rows, cut, key=lambda row: tuple(column[row].as_py() for column in columns))
