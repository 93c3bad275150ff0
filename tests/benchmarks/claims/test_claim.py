"""A table of claims on figures that can be worked out by hand: differences, effects, verdicts, and what is printed."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchmarks.claims.__main__ import main, write
from benchmarks.claims.claim import Claim, Row, effect, markdown, verdict
from benchmarks.claims.plot import plot


def claim(ours: list[float], theirs: list[float]) -> Claim:
    rows = [Row("repair", {"i2t": ours, "mean": ours}), Row("no_audit", {"i2t": theirs, "mean": theirs}, "drops", "+")]
    return Claim("ablations", "R@1.", "repair", "mean", rows)


def test_difference_of_two_seeds_by_hand() -> None:
    result = claim([30, 34], [28, 28]).result()
    row = result["rows"][1]
    # 2 and 6 points: mean 4, deviation sqrt(8), half width 12.706 * 2.8284 / sqrt(2) = 25.41, d = 4 / 2.8284.
    assert row["reference_minus"] == pytest.approx([4, 4 - 25.41, 4 + 25.41], abs=0.01)
    assert row["effect"] == 1.41 and row["reproduced"] == "yes, interval covers 0"
    assert row["mean"] == {"i2t": 28, "mean": 28} and row["scores"]["mean"] == [28, 28]
    assert "reference_minus" not in result["rows"][0]
    assert "| no audit | 28.0 | 28.0 | +4.0 [-21.4, +29.4] | 1.4 | drops | yes, interval covers 0 |" in markdown(result)


def test_one_seed_has_no_interval_and_no_effect() -> None:
    result = claim([30], [28]).result()
    assert result["rows"][1]["reference_minus"] == [2, None, None] and result["rows"][1]["effect"] is None
    json.dumps(result, allow_nan=False)
    assert "| +2.0 |" in markdown(result)


@pytest.mark.parametrize(
    ("mean", "low", "high", "expected", "said"),
    [
        (2, 1, 3, "+", "yes"),
        (2, -1, 5, "+", "yes, interval covers 0"),
        (-2, -3, -1, "+", "no"),
        (-2, -5, 1, "+", "no, interval covers 0"),
        (-2, -3, -1, "-", "yes"),
        (2, float("-inf"), float("inf"), "+", "yes, interval covers 0"),
        (-1, -3, 1, "<=", "yes"),
        (0, 0, 0, "<=", "yes"),
        (1, -1, 3, "<=", "no, interval covers 0"),
        (1, 0.5, 3, "<=", "no"),
    ],
)
def test_a_verdict_is_the_sign_and_whether_it_is_sure(
    mean: float, low: float, high: float, expected: str, said: str
) -> None:
    assert verdict(mean, low, high, expected) == said  # type: ignore[arg-type]


def test_no_effect_without_deviation() -> None:
    assert effect([2.0, 2.0]) is None and effect([1.0]) is None
    assert effect([1.0, 3.0]) == pytest.approx(1.41)


def test_files_of_a_table(tmp_path: Path) -> None:
    result = claim([30, 34], [28, 28]).result()
    write(result, tmp_path)
    assert json.loads((tmp_path / "ablations.json").read_text()) == result
    assert (tmp_path / "ablations.md").read_text() == markdown(result)
    picture = ET.fromstring((tmp_path / "ablations.svg").read_text())
    texts = [node.text for node in picture.iter() if node.tag.endswith("text")]
    assert "no audit" in texts and "repair minus each, mean, points" in texts


def test_a_name_in_a_plot_is_no_markup() -> None:
    rows = [Row("a", {"x": [1.0]}), Row("<b>&", {"x": [2.0]})]
    ET.fromstring(plot(Claim("n", "t", "a", "x", rows).result()))


def test_an_unknown_table_is_refused() -> None:
    import typer

    app = typer.Typer()
    app.command()(main)
    ended = CliRunner().invoke(app, ["mian"])
    assert ended.exit_code == 2 and "no table 'mian'" in ended.output
