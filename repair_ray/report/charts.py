"""Charts as plain values (bars) and inline SVG (curves). Every label is escaped here, whoever wrote it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from markupsafe import Markup, escape

WIDTH, HEIGHT = 340, 170
LEFT, RIGHT, TOP, BOTTOM = 46, 8, 8, 24
SERIES = 4

Point = tuple[float, float]


def bars(counts: Mapping[str, int], *, sort: bool = True) -> list[dict[str, Any]]:
    """Label, count, share of the total and width (percent of the longest bar) of each count above 0."""
    items = [(str(label), int(n)) for label, n in counts.items() if n]
    if sort:
        items.sort(key=lambda item: (-item[1], item[0]))
    total, longest = sum(n for _, n in items), max((n for _, n in items), default=1)
    return [
        {"label": label, "count": n, "share": 100 * n / total, "width": round(100 * n / longest, 2)}
        for label, n in items
    ]


def log_bins(numbers: Iterable[int]) -> dict[str, int]:
    """How many of `numbers` (each >= 1) lie in 1, 2-3, 4-7, 8-15, ...; empty bins in between are kept.

    Raises:
        ValueError: a number below 1.
    """
    found: Counter[int] = Counter()
    for number in numbers:
        if number < 1:
            raise ValueError(f"a log-binned histogram takes counts of at least 1, not {number}")
        found[number.bit_length() - 1] += 1
    last = max(found, default=-1)
    return {_bin_label(2**power, 2 ** (power + 1) - 1): found[power] for power in range(last + 1)}


def _bin_label(low: int, high: int) -> str:
    return str(low) if low == high else f"{low}–{high}"


def curves(series: Mapping[str, Sequence[Point]], title: str, mark: float | None = None) -> Markup:
    """Polylines over training steps as inline SVG; values that are not finite are left out.

    Args:
        series: points (step, value) by name, at most four told apart by colour and dash.
        mark: a step to mark with an upright line, such as the best one.

    Returns an empty string where there is no point at all.
    """
    kept = {name: [p for p in points if all(map(math.isfinite, p))] for name, points in series.items()}
    kept = {name: points for name, points in kept.items() if points}
    every = [point for points in kept.values() for point in points]
    if not every:
        return Markup("")
    x_low, x_high = _span([x for x, _ in every])
    y_low, y_high = _span([y for _, y in every])

    def place(point: Point) -> Point:
        x = LEFT + (point[0] - x_low) / (x_high - x_low) * (WIDTH - LEFT - RIGHT)
        y = HEIGHT - BOTTOM - (point[1] - y_low) / (y_high - y_low) * (HEIGHT - TOP - BOTTOM)
        return x, y

    parts = [_axes((x_low, x_high), (y_low, y_high))]
    if mark is not None and x_low <= mark <= x_high:
        x = place((mark, y_low))[0]
        parts.append(
            Markup('<line class="mark" x1="{0:.1f}" x2="{0:.1f}" y1="{1}" y2="{2}"/>').format(x, TOP, HEIGHT - BOTTOM)
        )
    for number, points in enumerate(kept.values()):
        parts.append(_line([place(point) for point in points], number % SERIES))
    described = "; ".join(f"{name} from {points[0][1]:.4g} to {points[-1][1]:.4g}" for name, points in kept.items())
    head = Markup('<svg viewBox="0 0 {} {}" role="img" aria-label="{}">').format(WIDTH, HEIGHT, f"{title}: {described}")
    return head + Markup("").join(parts) + Markup("</svg>") + _legend(list(kept))


def _span(values: list[float]) -> Point:
    low, high = min(values), max(values)
    return (low, high) if high > low else (low - 0.5, high + 0.5)


def _axes(x: Point, y: Point) -> Markup:
    floor = HEIGHT - BOTTOM
    frame = Markup('<path class="axis" d="M{0} {1}V{2}H{3}"/>').format(LEFT, TOP, floor, WIDTH - RIGHT)
    text = Markup('<text x="{}" y="{}" text-anchor="{}">{}</text>')
    labels = [
        text.format(LEFT - 5, TOP + 8, "end", f"{y[1]:.4g}"),
        text.format(LEFT - 5, floor, "end", f"{y[0]:.4g}"),
        text.format(LEFT, HEIGHT - 8, "start", f"{x[0]:.6g}"),
        text.format(WIDTH - RIGHT, HEIGHT - 8, "end", f"step {x[1]:.6g}"),
    ]
    return frame + Markup("").join(labels)


def _line(points: list[Point], number: int) -> Markup:
    if len(points) == 1:
        return Markup('<circle class="dot s{}" cx="{:.1f}" cy="{:.1f}" r="3"/>').format(number, *points[0])
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return Markup('<polyline class="s{}" points="{}"/>').format(number, path)


def _legend(names: list[str]) -> Markup:
    swatch = '<svg class="swatch" viewBox="0 0 24 6" aria-hidden="true"><polyline class="s{}" points="0,3 24,3"/></svg>'
    items = [Markup("<li>" + swatch + "{}</li>").format(i % SERIES, escape(name)) for i, name in enumerate(names)]
    return Markup('<ul class="legend">') + Markup("").join(items) + Markup("</ul>")
