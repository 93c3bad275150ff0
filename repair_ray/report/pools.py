"""What the actors of each stage did with their time: a table for the terminal, and values for the report's section.

The section is `templates/pools.html.j2`; a page that includes it gives it `pools`, what `pool_rows` returns.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rich.table import Table

from repair_ray.report.plain import safe_text, titled
from repair_ray.report.results import NOTHING, count, duration
from repair_ray.run import Run


def pool_rows(run: Run) -> list[dict[str, Any]]:
    """The pools of all finished products in their order: facts as `observing.figures.pool_facts`, and `stage`."""
    return _rows({"name": name, **manifest} for name, manifest in run.products())


def pools_table(products: Iterable[Mapping[str, Any]]) -> Table:
    """For a terminal; `products` have a `name`, and their `figures`."""
    table = titled("Actors")
    table.add_column("product", overflow="fold")
    table.add_column("pool", overflow="fold")
    headings = ("actors", "busy", "set-up", "idle\nGPU", "rows/s", "tokens/s", "queue", "again", "spilled")
    for name in headings:
        table.add_column(name, justify="right", no_wrap=True, vertical="bottom")
    for row in _rows(products):
        table.add_row(
            safe_text(row["stage"]),
            safe_text(row["pool"]),
            count(row["actors"]),
            NOTHING if row["utilisation"] is None else f"{100 * row['utilisation']:.0f} %",
            duration(row["setup_seconds"]),
            duration(row["idle_gpu_seconds"]) if row["gpus"] else NOTHING,
            NOTHING if row["rows_per_second"] is None else f"{row['rows_per_second']:,.1f}",
            f"{row['tokens_per_second']:,.1f}" if row["tokens_per_second"] else NOTHING,
            NOTHING if row["queue_mean"] is None else f"{row['queue_mean']:.1f}",
            count(row["retries"]),
            size(row["spilled_bytes"]),
        )
    return table


def size(number: float) -> str:
    """Bytes as people read them: `0`, `512 B`, `1.5 GiB`."""
    if not number:
        return "0"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if number < 1024:
            return f"{number:.0f} B" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1024
    return f"{number:.1f} TiB"


def _rows(products: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [{"stage": product["name"], **pool} for product in products for pool in product.get("figures") or ()]
