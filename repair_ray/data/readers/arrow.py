"""Arrow files as `datasets.save_to_disk` writes them: a folder of data-*.arrow, or one such folder a split."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator

import pyarrow as pa

from repair_ray.data.files import filesystem, is_remote
from repair_ray.data.readers.base import Reader, ReadOptions
from repair_ray.data.readers.table_rows import TableSource, read_tables
from repair_ray.data.records import DataError, Item

_FILE = b"ARROW1"
_STREAM = b"\xff\xff\xff\xff"


def detect(head: bytes) -> bool:
    """A stream of record batches (which `save_to_disk` writes), or an Arrow file with a footer."""
    return head.startswith((_STREAM, _FILE))


def choose(files: list[str]) -> list[str]:
    """The .arrow files but for those that `map` and `filter` leave behind in a saved data set's folder."""
    arrow = [file for file in files if file.lower().endswith(".arrow")]
    return [file for file in arrow if not file.rpartition("/")[2].startswith(("cache-", "tmp", "indices-"))]


def read(path: str, files: list[str], options: ReadOptions) -> Iterator[Item]:
    """Records of the rows, as `read_tables` makes them.

    Raises DataError where a folder's state.json names a data file that is not there, or says that the rows are
    those of an index beside the data.
    """
    _check_states(files)
    return read_tables(path, files, options, TableSource(_schema, _batches))


def _check_states(files: list[str]) -> None:
    folders: dict[str, set[str]] = defaultdict(set)
    for file in files:
        folder, _, name = file.rpartition("/")
        folders[folder].add(name)
    for folder, names in folders.items():
        state = _state(f"{folder}/state.json" if folder else "state.json")
        if state.get("_indices_data_files"):
            raise DataError(f"{folder}: its rows are chosen by an index file; save it again with datasets 2.0 or newer")
        listed = [entry.get("filename") for entry in state.get("_data_files") or [] if isinstance(entry, dict)]
        missing = [str(name) for name in listed if name not in names]
        if missing and len(names) > 1:
            raise DataError(f"{folder}: state.json names {', '.join(missing)}, not there: the data set is incomplete")


def _state(file: str) -> dict:
    where, inner = filesystem(file)
    try:
        with where.open_input_file(inner) as stream:
            loaded = json.loads(bytes(stream.read()))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise DataError(f"{file} is not readable JSON: {error}") from None
    return loaded if isinstance(loaded, dict) else {}


def _open(file: str) -> pa.RecordBatchReader:
    where, inner = filesystem(file)
    # A mapped file is read where it is looked at: an id column without the pictures beside it.
    opened = where.open_input_file(inner) if is_remote(file) else pa.memory_map(inner)
    head = opened.read(len(_FILE))
    opened.seek(0)
    return pa.ipc.open_file(opened) if head == _FILE else pa.ipc.open_stream(opened)


def _schema(file: str) -> pa.Schema:
    try:
        return _open(file).schema
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"{file} is not a readable Arrow file: {error}") from None


def _batches(file: str, names: list[str], batch_rows: int) -> Iterator[pa.RecordBatch]:
    try:
        opened = _open(file)
        stored = (
            map(opened.get_batch, range(opened.num_record_batches))
            if isinstance(opened, pa.ipc.RecordBatchFileReader)
            else opened
        )
        for batch in stored:
            chosen = batch.select(names)
            for start in range(0, len(chosen), batch_rows):
                yield chosen.slice(start, batch_rows)
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"{file} is damaged: {error}") from None


READER = Reader(name="arrow", suffixes=(".arrow",), detect=detect, read=read, chooses=choose, layout=True)
