from __future__ import annotations

import math

import pytest

from repair_ray.report.charts import bars, curves, log_bins
from repair_ray.report.grids import changed_words


def test_charts() -> None:
    assert log_bins([1, 1, 2, 3, 9]) == {"1": 2, "2–3": 2, "4–7": 0, "8–15": 1}
    with pytest.raises(ValueError, match="not 0"):
        log_bins([0])
    assert [(bar["label"], bar["share"], bar["width"]) for bar in bars({"a": 1, "b": 3, "c": 0})] == [
        ("b", 75.0, 100.0),
        ("a", 25.0, 33.33),
    ]
    svg = curves({"<loss>": [(0, 1.0), (10, 3.0), (20, math.inf)]}, 'ti"tle', mark=5)
    assert 'points="46.0,146.0 332.0,8.0"' in svg  # the lower left and the upper right corner of the frame
    assert "&lt;loss&gt;" in svg
    assert "ti&#34;tle: " in svg
    assert 'class="mark" x1="189.0"' in svg
    assert curves({"loss": [(1, math.nan)]}, "t") == ""
    assert "<circle" in curves({"loss": [(1, 2.0)]}, "t")


def test_changed_words() -> None:
    assert changed_words("a red circle", "a blue circle") == [("a", False), ("blue", True), ("circle", False)]
    assert changed_words("two red circles", "two circles") == [("two", False), ("circles", False)]
