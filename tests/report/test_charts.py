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
    assert "<title>ti&#34;tle</title><desc>&lt;loss&gt; from 1 to 3</desc>" in svg
    assert "<circle" not in svg
    assert 'class="mark" x1="189.0"' in svg
    assert curves({"loss": [(1, math.nan)]}, "t") == ""
    assert "<circle" in curves({"loss": [(1, 2.0)]}, "t")


def test_curves_of_few_points_show_each_with_its_interval() -> None:
    svg = curves(
        {"up": [(0, 20.0), (1, 30.0)]},
        "R@1",
        unit="round",
        spans={"up": [(1, 25.0, 40.0), (0, math.nan, 1)]},
        dots=True,
    )
    assert "<desc>up: 20 at round 0, 30 at round 1</desc>" in svg
    # 20 to 40 spans the frame from 146 to 8: 30 lies in the middle, 25 a quarter up.
    assert 'cx="332.0" cy="77.0"' in svg and 'cx="46.0" cy="146.0"' in svg
    assert '<line class="span s0" x1="332.0" x2="332.0" y1="111.5" y2="8.0"/>' in svg
    assert svg.count('class="span') == 1
    assert ">round 1</text>" in svg


def test_changed_words() -> None:
    assert changed_words("a red circle", "a blue circle") == [("a", False), ("blue", True), ("circle", False)]
    assert changed_words("two red circles", "two circles") == [("two", False), ("circles", False)]
