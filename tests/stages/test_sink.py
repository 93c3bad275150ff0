"""From a graph's files to a committed table, piece by piece."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from repair_ray import tables
from repair_ray.run import Recipe, Run, RunError
from repair_ray.stages import sink
from repair_ray.stages.mine import within_budget
from repair_ray.stages.sink import ByPiece, reconcile, sorted_pieces

MANY = 900


def failures(seed: int = 0, count: int = MANY) -> pa.Table:
    rng = random.Random(seed)
    rows: list[dict[str, object]] = [
        {
            "failure_id": f"f{n}",
            "direction": rng.choice(["i2t", "t2i"]),
            "query_id": f"q{rng.randrange(40)}é" if n % 7 else "the same",
            "candidate_id": f"c{n}",
            "rank": rng.choice([None, 1, 2, 3]),
            "status": "ok",
        }
        for n in range(count)
    ]
    return tables.to_table(rows, tables.FAILURES.schema)


def scatter(table: pa.Table, folder: Path, files: int, seed: int = 0) -> list[Path]:
    """The rows in any order over some files, as a graph writes them."""
    folder.mkdir(parents=True)
    order = np.random.default_rng(seed).permutation(len(table))
    paths = []
    for number, rows in enumerate(np.array_split(order, files)):
        paths.append(folder / f"{number}.parquet")
        pq.write_table(table.take(rows), paths[-1])
    return paths


def in_order(table: pa.Table) -> pa.Table:
    return table.sort_by([(column, "ascending") for column in tables.FAILURES.sort_by])


@pytest.mark.parametrize(("piece_bytes", "most"), [(2**30, 256), (4_000, 256), (4_000, 3), (1, 50)])
def test_pieces_are_the_sorted_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece_bytes: int, most: int
) -> None:
    monkeypatch.setattr(sink, "PIECE_BYTES", piece_bytes)
    monkeypatch.setattr(sink, "MAX_PIECES", most)
    table = failures()
    pieces = list(sorted_pieces(scatter(table, tmp_path / "rows", 7), tables.FAILURES, tmp_path / "sorting"))
    assert pa.concat_tables(pieces).equals(in_order(table))
    assert not (tmp_path / "sorting").exists()
    if piece_bytes < 2**30:
        assert 2 < len(pieces) <= most or most == 3
        largest = max(map(len, pieces[:-1]))  # the last holds all rows of the one query that has a seventh of them
        assert largest < (MANY if most > 3 else 2 * MANY / 3)


def test_committed_whole_or_piece_by_piece_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table, recipe = failures(), Recipe({})
    whole, pieces = Run(tmp_path / "whole"), Run(tmp_path / "pieces")
    whole.commit("f", recipe, tables.FAILURES, table, 1.0)
    monkeypatch.setattr(sink, "PIECE_BYTES", 3_000)
    found = sorted_pieces(scatter(table, tmp_path / "rows", 5), tables.FAILURES, tmp_path / "sorting")
    pieces.commit_pieces("f", recipe, tables.FAILURES, found, lambda: 1.0)
    assert pieces.read("f").equals(whole.read("f"))
    manifests = [dict(run.manifest("f") or {}, started=0, finished=0) for run in (whole, pieces)]
    assert manifests[0] == manifests[1]


def test_a_commit_that_is_killed_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink, "PIECE_BYTES", 3_000)
    table, recipe, run = failures(), Recipe({}), Run(tmp_path / "run")
    files = scatter(table, tmp_path / "rows", 5)

    def stopped() -> Any:
        pieces = sorted_pieces(files, tables.FAILURES, tmp_path / "sorting")
        yield next(pieces)
        yield next(pieces)
        raise InterruptedError

    with pytest.raises(InterruptedError):
        run.commit_pieces("f", recipe, tables.FAILURES, stopped(), lambda: 1.0)
    assert run.manifest("f") is None
    again = sorted_pieces(files, tables.FAILURES, tmp_path / "sorting")
    run.commit_pieces("f", recipe, tables.FAILURES, again, lambda: 1.0)
    assert run.read("f").equals(in_order(table))


def asked(folder: Path, *ids: str) -> Path:
    folder.mkdir(exist_ok=True, parents=True)
    pq.write_table(pa.table({"query_id": pa.array(ids, pa.string())}), folder / "input.parquet")
    return folder / "input.parquet"


def answered(folder: Path, *rows: tuple[str, str]) -> list[Path]:
    made: list[dict[str, object]] = [
        {"failure_id": row, "direction": "i2t", "query_id": query, "status": "ok"} for row, query in rows
    ]
    return scatter(tables.to_table(made, tables.FAILURES.schema), folder, 2)


def test_all_that_was_asked_for_has_come_once(tmp_path: Path) -> None:
    source = asked(tmp_path / "in", "a", "b")
    reconcile(answered(tmp_path / "1", ("1", "a"), ("2", "a"), ("3", "b")), source, tables.FAILURES, "f")
    with pytest.raises(RunError, match="f: 1 of 2 rows never arrived"):
        reconcile(answered(tmp_path / "2", ("1", "a"), ("2", "a")), source, tables.FAILURES, "f")
    with pytest.raises(RunError, match="f: 2 rows came twice"):
        rows = [("1", "a"), ("1", "b"), ("2", "a"), ("2", "b"), ("3", "b")]
        reconcile(answered(tmp_path / "3", *rows), source, tables.FAILURES, "f")
    with pytest.raises(RunError, match="f: 0 of 2 rows never arrived"):
        reconcile(answered(tmp_path / "4", ("1", "a"), ("2", "b"), ("3", "c")), source, tables.FAILURES, "f")


def test_different_ids_of_one_hash_are_no_doubles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink, "_hash", lambda column: np.ones(len(column), np.uint64))
    source = asked(tmp_path / "in", "a")
    reconcile(answered(tmp_path / "1", ("1", "a"), ("2", "a")), source, tables.FAILURES, "f")
    with pytest.raises(RunError, match="1 rows came twice"):
        reconcile(answered(tmp_path / "2", ("1", "a"), ("2", "a"), ("1", "a")), source, tables.FAILURES, "f")


def test_a_budget_by_piece_is_that_of_the_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from repair_ray.config import MiningConfig
    from repair_ray.stages.graph import _finished
    from repair_ray.stages.mine import _NONE, _settled

    monkeypatch.setattr(sink, "PIECE_BYTES", 3_000)
    mining = MiningConfig(budget=100)
    table = failures().filter(pc.is_valid(failures()["rank"]))
    finish = ByPiece(("failure_id", "direction", "rank", "status"), lambda rows: _settled(rows, mining, _NONE))
    files = scatter(table, tmp_path / "rows", 4)
    made = pa.concat_tables(_finished(files, tables.FAILURES, tmp_path / "sorting", finish))
    assert made.equals(within_budget(in_order(table), mining))
    kept = made.filter(pc.equal(made["status"], "ok"))
    assert len(kept) == 2 * 100 and len(made) > len(kept)
