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
ASIDE = 5

Point = tuple[float, float]
Span = tuple[float, float, float]


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


def curves(
    series: Mapping[str, Sequence[Point]],
    title: str,
    mark: float | None = None,
    *,
    unit: str = "step",
    spans: Mapping[str, Sequence[Span]] | None = None,
    dots: bool = False,
) -> Markup:
    """Polylines as inline SVG, with a title and a description for who does not see it; infinite values are left out.

    Args:
        series: points (x, value) by name, at most four told apart by colour and dash.
        mark: an x to mark with an upright line, such as the best step.
        unit: what x counts.
        spans: intervals (x, low, high) by name, drawn as upright lines.
        dots: whether each point has a dot, for few points.

    Returns an empty string where there is no point at all.
    """
    kept = {name: [p for p in points if all(map(math.isfinite, p))] for name, points in series.items()}
    kept = {name: points for name, points in kept.items() if points}
    if not kept:
        return Markup("")
    bounds = {name: [span for span in (spans or {}).get(name, ()) if all(map(math.isfinite, span))] for name in kept}
    every = [point for points in kept.values() for point in points]
    reach = [end for found in bounds.values() for _, low, high in found for end in (low, high)]
    x_low, x_high = _span([x for x, _ in every])
    y_low, y_high = _span([*(y for _, y in every), *reach])

    def place(point: Point, aside: float = 0.0) -> Point:
        x = LEFT + (point[0] - x_low) / (x_high - x_low) * (WIDTH - LEFT - RIGHT) + aside
        y = HEIGHT - BOTTOM - (point[1] - y_low) / (y_high - y_low) * (HEIGHT - TOP - BOTTOM)
        return x, y

    parts = [_axes((x_low, x_high), (y_low, y_high), unit)]
    if mark is not None and x_low <= mark <= x_high:
        x = place((mark, y_low))[0]
        parts.append(
            Markup('<line class="mark" x1="{0:.1f}" x2="{0:.1f}" y1="{1}" y2="{2}"/>').format(x, TOP, HEIGHT - BOTTOM)
        )
    for number, (name, points) in enumerate(kept.items()):
        # Intervals at the same x stand beside each other.
        aside = ASIDE * (number - (len(kept) - 1) / 2) if spans else 0.0
        ends = [(place((x, low), aside), place((x, high), aside)) for x, low, high in bounds[name]]
        parts += [_upright(low, high, number % SERIES) for low, high in ends]
        placed = [place(point, aside) for point in points]
        if len(placed) > 1:
            parts.append(_line(placed, number % SERIES))
        if dots or len(placed) == 1:
            parts += [_dot(point, number % SERIES) for point in placed]
    head = Markup('<svg viewBox="0 0 {} {}" role="img"><title>{}</title><desc>{}</desc>')
    described = "; ".join(_said(name, points, unit, dots) for name, points in kept.items())
    return (
        head.format(WIDTH, HEIGHT, title, described) + Markup("").join(parts) + Markup("</svg>") + _legend(list(kept))
    )


def _said(name: str, points: list[Point], unit: str, every: bool) -> str:
    if every:
        return f"{name}: " + ", ".join(f"{y:.4g} at {unit} {x:.6g}" for x, y in points)
    return f"{name} from {points[0][1]:.4g} to {points[-1][1]:.4g}"


def _span(values: list[float]) -> Point:
    low, high = min(values), max(values)
    return (low, high) if high > low else (low - 0.5, high + 0.5)


def _axes(x: Point, y: Point, unit: str) -> Markup:
    floor = HEIGHT - BOTTOM
    frame = Markup('<path class="axis" d="M{0} {1}V{2}H{3}"/>').format(LEFT, TOP, floor, WIDTH - RIGHT)
    text = Markup('<text x="{}" y="{}" text-anchor="{}">{}</text>')
    labels = [
        text.format(LEFT - 5, TOP + 8, "end", f"{y[1]:.4g}"),
        text.format(LEFT - 5, floor, "end", f"{y[0]:.4g}"),
        text.format(LEFT, HEIGHT - 8, "start", f"{x[0]:.6g}"),
        text.format(WIDTH - RIGHT, HEIGHT - 8, "end", f"{unit} {x[1]:.6g}"),
    ]
    return frame + Markup("").join(labels)


def _line(points: list[Point], number: int) -> Markup:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return Markup('<polyline class="s{}" points="{}"/>').format(number, path)


def _dot(point: Point, number: int) -> Markup:
    return Markup('<circle class="dot s{}" cx="{:.1f}" cy="{:.1f}" r="3.5"/>').format(number, *point)


def _upright(low: Point, high: Point, number: int) -> Markup:
    line = '<line class="span s{}" x1="{:.1f}" x2="{:.1f}" y1="{:.1f}" y2="{:.1f}"/>'
    return Markup(line).format(number, low[0], high[0], low[1], high[1])


def _legend(names: list[str]) -> Markup:
    swatch = '<svg class="swatch" viewBox="0 0 24 6" aria-hidden="true"><polyline class="s{}" points="0,3 24,3"/></svg>'
    items = [Markup("<li>" + swatch + "{}</li>").format(i % SERIES, escape(name)) for i, name in enumerate(names)]
    return Markup('<ul class="legend">') + Markup("").join(items) + Markup("</ul>")
