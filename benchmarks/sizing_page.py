"""cluster/SIZING.md as text, from the formulas and inputs of `benchmarks.sizing`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks.sizing import HOUR, STAGES, Input, Size, Use, counted, estimate, money, seconds

HEAD = """# What a round takes

Written by `python -m benchmarks.sizing --write` from `benchmarks/sizing.yaml`: change the prices, GPUs and sizes there,
not here. Nothing on this page was run at these sizes. The inputs say which of them are rows that a benchmark measured
and which are assumptions; with other assumptions everything is another.

* Money goes with the failures that are audited and edited, which `mining.budget` sets, and hardly with the pairs, until
  exact search, which grows with the square of the pairs, is most of it.
* Then mine with `mining.index: ivf`, which reads a share of the gallery, and measures the recall that it has; or mine a
  part of the pairs. It is never in the sums, as it is not exact.
* `{width}` float32 features are {bytes:g} KB a picture or caption: the gallery of 1B pairs is {gallery:g} TB, which
  `mining.shards` spreads over the memory of the nodes.
"""


def page(inputs: Mapping[str, Input], sizes: Sequence[Size]) -> str:
    """The whole page."""
    x = {name: given.value for name, given in inputs.items()}
    width = x["width"]
    head = HEAD.format(width=int(width), bytes=round(4 * width / 1000, 1), gallery=round(4 * width * 1e9 / 1e12, 1))
    parts = [head, "## In all", whole(sizes, x)]
    for size in sizes:
        captions = f"{size.captions} caption{'s' if size.captions > 1 else ''} each"
        parts += [
            f"## {size.name}: {size.images:,} pictures, {captions}, {size.failures:,} failures, {size.gpus} GPUs",
            by_stage(size, x),
        ]
    parts += [
        "The cheaper exact way to mine is in the sums; the others stand beside it in brackets.",
        "## Formulas",
        formulas(),
        "Time = the longer of GPU s / GPUs and core s / (GPUs x cores_per_gpu), over `scale`, and `start` for each "
        "stage. Money = GPU h x gpu_hour + core h x core_hour + GB x gb_month x months.",
        "## Inputs",
        table(
            ("input", "value", "unit", "from"),
            [(f"`{name}`", _number(given.value), given.unit, given.source) for name, given in inputs.items()],
        ),
    ]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def whole(sizes: Sequence[Size], x: Mapping[str, float]) -> str:
    """One line a size."""
    lines = []
    for size in sizes:
        uses = counted(estimate(size, x), x)
        total = _sum(list(uses.values()))
        took = sum(seconds(use, size, x) for use in uses.values())
        cost = money(total, x)
        lines.append(
            (
                size.name,
                f"{size.failures:,}",
                str(size.gpus),
                _hours(took),
                f"{total.gpu / HOUR:,.0f}",
                f"{total.core / HOUR:,.0f}",
                f"{total.gb:,.0f}",
                f"${cost:,.0f}",
                f"${1000 * cost / size.failures:,.2f}",
            )
        )
    head = ("pairs", "failures", "GPUs", "time", "GPU h", "core h", "GB kept", "money", "per 1,000 failures")
    return table(head, lines)


def by_stage(size: Size, x: Mapping[str, float]) -> str:
    """One line a stage; ways to mine that are not counted are in brackets."""
    uses = estimate(size, x)
    own = counted(uses, x)
    lines = []
    for name, use in uses.items():
        cells = [
            _hours(seconds(use, size, x)),
            f"{use.gpu / HOUR:,.1f}",
            f"{use.core / HOUR:,.1f}",
            f"{use.gb:,.1f}",
            f"${money(use, x):,.2f}",
        ]
        lines.append((name, *(cells if name in own else [f"({cell})" for cell in cells])))
    return table(("stage", "time", "GPU h", "core h", "GB kept", "money"), lines)


def formulas() -> str:
    """The formulas as the code has them."""
    return table(("stage", "takes"), [(name, _first_line(STAGES[name].__doc__)) for name in STAGES])


def table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    rows = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    return "\n".join([*rows, *("| " + " | ".join(line) + " |" for line in lines)])


def _sum(uses: Sequence[Use]) -> Use:
    return Use(sum(use.gpu for use in uses), sum(use.core for use in uses), sum(use.gb for use in uses))


def _hours(seconds: float) -> str:
    if seconds < HOUR:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / HOUR:,.1f} h" if seconds < 48 * HOUR else f"{seconds / HOUR / 24:,.1f} days"


def _number(value: float) -> str:
    return f"{value:,.0f}" if 1000 <= value < 1e7 else f"{value:.4g}"


def _first_line(text: str | None) -> str:
    return (text or "").strip().splitlines()[0]
