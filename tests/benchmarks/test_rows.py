"""Rows and their files, and the arithmetic of turns, on figures that can be worked out by hand."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchmarks import __main__ as command
from benchmarks.rows import MIB, Row, keep, markdown, read_rows
from benchmarks.turns import Turns, in_turns, rounded

ROW: Row = {"name": "n", "ours": 2, "peer": 1, "peer_name": "p", "ratio": 2.0, "unit": "u", "n": 3, "note": "x"}


def test_results_of_one_name_are_replaced(tmp_path: Path) -> None:
    for row in (ROW, {**ROW, "name": "m"}, {**ROW, "ours": 5}):
        keep([row], tmp_path / "deep" / "rows.json")  # type: ignore[list-item]
    kept = read_rows(tmp_path / "deep" / "rows.json")
    assert [(row["name"], row["ours"]) for row in kept] == [("m", 2), ("n", 5)]
    assert (tmp_path / "deep" / "rows.md").read_text() == markdown(kept)
    assert read_rows(tmp_path / "none.json") == []
    assert "| n | 5 | 1 | p | 2.0 | u | 3 | x |" in markdown([{**ROW, "ours": 5}])


def test_the_ratio_is_the_median_of_the_pairs_not_of_the_sides() -> None:
    # Pair by pair 2, 1 and 0.5 times as fast; the machine was slow in the second pair, for both.
    turns = Turns({"ours": [1.0, 8.0, 4.0], "peer": [2.0, 8.0, 2.0]}, {"ours": 2 * MIB, "peer": 5 * MIB})
    row = turns.row("r", "ours", "peer", 100, "rows/s", "two threads", mark=0.95)
    assert (row["ratio"], row["n"]) == (1.0, 3)
    assert (row["ours"], row["peer"]) == (25.0, 50.0)
    assert row["note"] == "mark 0.95; ratios 0.500 to 2.000 in 3 pairs; two threads"
    memory = turns.memory_row("r", "ours", "peer")
    assert (memory["name"], memory["ours"], memory["peer"], memory["ratio"]) == ("r, memory", 2, 5, 2.5)


def test_sides_have_their_turns_in_order_and_the_first_is_watched_not_timed() -> None:
    order: list[str] = []

    def side(name: str, mebibytes: int) -> float:
        order.append(name)
        # In a process of its own, below this one: this one may have memory to spare that it gives to what asks.
        work = f"import time; held = b'x' * ({mebibytes} << 20); time.sleep(0.5)"
        subprocess.run([sys.executable, "-c", work], check=True)
        return float(len(order))

    turns = in_turns({"peer": lambda: side("peer", 100), "ours": lambda: side("ours", 20)}, 2)
    assert order == ["peer", "ours"] * 3
    assert turns.seconds == {"peer": [3.0, 5.0], "ours": [4.0, 6.0]}
    assert 75 * MIB < turns.memory["peer"] - turns.memory["ours"] < 85 * MIB
    assert turns.memory["ours"] > 20 * MIB


def test_four_digits_count() -> None:
    assert [rounded(value) for value in (123456.0, 0.000123456, 9.8765)] == [123500.0, 0.0001235, 9.877]


def test_an_unknown_benchmark_is_named_with_those_that_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    import typer

    app = typer.Typer()
    app.command()(command.main)
    ended = CliRunner().invoke(app, ["serach", "--quick"])
    assert ended.exit_code == 2
    assert "no benchmark is called serach" in " ".join(ended.output.split())
