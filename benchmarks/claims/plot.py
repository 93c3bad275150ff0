"""A table of claims as a picture: the reference minus each row, with its interval. SVG, for a README."""

from __future__ import annotations

from typing import Any

from markupsafe import Markup

WIDTH, ROW, LEFT, RIGHT, TOP = 640, 22, 190, 24, 34


def plot(result: dict[str, Any]) -> str:
    """One line a row: a dot at the mean difference, a bar over its 95 % interval, an upright line at 0."""
    rows = [row for row in result["rows"] if "reference_minus" in row]
    ends = [value for row in rows for value in row["reference_minus"] if value is not None]
    low, high = min([0.0, *ends]), max([0.0, *ends])
    span = (high - low) or 1.0

    def place(value: float) -> float:
        return LEFT + (value - low) / span * (WIDTH - LEFT - RIGHT)

    height = TOP + ROW * len(rows) + 22
    against = result["reference"].replace("_", " ")
    title = f"{against} minus each, {result['measure']}, points"
    parts = [
        Markup('<text x="{}" y="18" font-weight="bold">{}</text>').format(8, title),
        Markup('<path d="M{0:.1f} {1}V{2}" stroke="#888" stroke-dasharray="3 3"/>').format(
            place(0), TOP - 8, height - 20
        ),
    ]
    for number, row in enumerate(rows):
        mean, least, most = row["reference_minus"]
        y = TOP + ROW * number + 6
        parts.append(
            Markup('<text x="{}" y="{}" text-anchor="end">{}</text>').format(
                LEFT - 10, y + 4, row["name"].replace("_", " ")
            )
        )
        if least is not None:
            parts.append(
                Markup('<path d="M{:.1f} {}H{:.1f}" stroke="#4878a8" stroke-width="3"/>').format(
                    place(least), y, place(most)
                )
            )
        parts.append(Markup('<circle cx="{:.1f}" cy="{}" r="4" fill="#1f3f66"/>').format(place(mean), y))
    axis = Markup('<text x="{:.1f}" y="{}" text-anchor="middle">{}</text>')
    for value in dict.fromkeys((low, 0.0, high)):
        parts.append(axis.format(place(value), height - 6, f"{value:+.1f}" if value else "0"))
    frame = Markup(
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {} {}" font-family="sans-serif" font-size="12" '
        'role="img" aria-label="{}"><rect width="100%" height="100%" fill="#fff"/>{}</svg>\n'
    )
    return str(frame.format(WIDTH, height, title, Markup("").join(parts)))
