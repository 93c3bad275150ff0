"""Tables: ids, schemas, and rows that become tables."""

from __future__ import annotations

import hashlib

import pyarrow as pa
import pytest

from repair_ray import tables

ENGINE_TABLES = [
    tables.IMAGES,
    tables.CAPTIONS,
    tables.EMBEDDINGS,
    tables.FAILURES,
    tables.VERDICTS,
    tables.EDITS,
    tables.RANKS,
    tables.CLIPS,
    tables.MATCHES,
    tables.PROTOTYPES,
    tables.CONFUSABLE,
    tables.TEXTS,
    tables.SENTENCE_PAIRS,
]


def test_row_id_is_the_hash_of_its_parts() -> None:
    assert tables.row_id("i2t", 3, "x") == hashlib.sha256(b"i2t\x1f3\x1fx").hexdigest()[:16]
    assert tables.row_id("a", "bc") != tables.row_id("ab", "c")
    assert tables.row_id("a", "b") != tables.row_id("b", "a")
    assert len(tables.row_id("\u732b")) == 16


@pytest.mark.parametrize("table", ENGINE_TABLES, ids=lambda table: table.name)
def test_every_table_has_its_id_order_and_status(table: tables.Table) -> None:
    assert {table.id_column, *table.sort_by, "status", "reason"} <= set(table.schema.names)
    assert not table.schema.field(table.id_column).nullable
    assert not table.schema.field("status").nullable
    assert len(set(table.schema.names)) == len(table.schema.names)


def test_names_are_unique() -> None:
    assert len({table.name for table in ENGINE_TABLES}) == len(ENGINE_TABLES)


def test_absent_keys_become_nulls_and_other_keys_are_left_out() -> None:
    table = tables.to_table([{"query_id": "a", "place": 3, "more": object()}, {"direction": "i2t"}], tables.QUERIES)
    assert table.schema == tables.QUERIES
    assert table.to_pylist() == [
        {"query_id": "a", "direction": None, "place": 3},
        {"query_id": None, "direction": "i2t", "place": None},
    ]


def test_columns_that_are_absent_are_filled_with_nulls() -> None:
    table = tables.filled({"place": [1, 2]}, tables.QUERIES)
    assert table.schema == tables.QUERIES
    assert table.to_pylist() == [{"query_id": None, "direction": None, "place": place} for place in (1, 2)]


def test_no_rows_still_have_the_schema() -> None:
    for table in ENGINE_TABLES:
        assert tables.to_table([], table.schema).schema == table.schema


def test_nested_rows_survive() -> None:
    mismatch = {"type": "count", "query": "two", "candidate": "three"}
    row: dict[str, object] = {"failure_id": "f", "direction": "i2t", "mismatches": [mismatch], "status": "ok"}
    assert tables.to_table([row], tables.VERDICTS.schema).to_pylist()[0]["mismatches"] == [mismatch]


def test_a_value_of_another_type_is_an_error() -> None:
    with pytest.raises((pa.ArrowInvalid, pa.ArrowTypeError)):
        tables.to_table([{"width": "wide"}], tables.IMAGES.schema)
