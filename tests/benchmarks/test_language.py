"""The comparison of the vLLM stage with the plain engine, on figures that can be worked out by hand."""

from __future__ import annotations

from typing import Any

from benchmarks.language import compare, markdown


def row(name: str, rows: float, output: float, tokens: float) -> dict[str, Any]:
    speeds = {"rows/s": rows, "output tokens/s": output, "tokens/s": tokens}
    return {"name": name, "seconds": 10.0, "calls": 9, "usable": 8, **speeds}


def test_the_stage_is_held_against_the_mean_of_both_plain_runs() -> None:
    rows = [row("plain", 2.0, 40.0, 100.0), row("stage", 1.5, 45.0, 90.0), row("plain", 1.0, 60.0, 80.0)]
    result = compare(rows, 20, "m", 4)
    assert result["share"] == {"rows/s": 1.0, "output tokens/s": 0.9, "tokens/s": 1.0}
    assert "| stage | 10.0 | 9 | 8 | 1.50 | 45.00 | 90.00 |" in markdown(result)
    assert "| stage / plain |  |  |  | 1.00 | 0.90 | 1.00 |" in markdown(result)
