"""What a table is."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

STATUS = [pa.field("status", pa.string(), nullable=False), pa.field("reason", pa.string())]

# One thing that is wrong: its type, what the query says, what the candidate has.
MISMATCH = pa.struct([("type", pa.string()), ("query", pa.string()), ("candidate", pa.string())])


def required(*names: str) -> list[pa.Field]:
    """Columns of texts that are never null."""
    return [pa.field(name, pa.string(), nullable=False) for name in names]


@dataclass(frozen=True)
class Table:
    """A table's name, Arrow schema (the first column is the row id), and the column that resuming counts by.

    The two columns differ where a stage fans out, from queries to failures.
    """

    name: str
    schema: pa.Schema
    id_column: str
    sort_by: tuple[str, ...]
