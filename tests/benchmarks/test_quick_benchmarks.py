"""Each benchmark, at toy sizes, as its command runs it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.__main__ import BENCHMARKS, SKIPPED
from benchmarks.rows import COLUMNS, markdown, read_rows

ROOT = Path(__file__).parents[2]


@pytest.mark.whole_runs
@pytest.mark.parametrize("name", list(BENCHMARKS))
def test_it_writes_its_rows(name: str, tmp_path: Path) -> None:
    results = tmp_path / "rows.json"
    options = ["--quick", "--pairs", "1", "--folder", str(tmp_path / "work"), "--results", str(results)]
    ended = subprocess.run(
        [sys.executable, "-m", "benchmarks", name, *options], cwd=ROOT, capture_output=True, text=True, timeout=900
    )
    if ended.returncode == SKIPPED:
        pytest.skip(ended.stdout.strip().splitlines()[-1])
    assert ended.returncode == 0, (ended.stdout + ended.stderr)[-3000:]
    rows = read_rows(results)
    assert rows and all(tuple(row) == COLUMNS and row["ratio"] > 0 for row in rows)
    assert results.with_suffix(".md").read_text() == markdown(rows)
    assert not list((tmp_path / "work").glob("*/*")), "what it needed is gone"
