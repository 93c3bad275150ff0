"""The papers' claims, each a table: `python -m benchmarks.claims all --seeds 3`, or `main`, `ablations`, ...

Every table runs for several seeds (of the data and of training), and is written to `benchmarks/results/claims` as
JSON, Markdown and SVG as soon as it is measured. What was stopped goes on where it was; tables share their runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.claims import saft, san, sentences, signs, world
from benchmarks.claims.claim import Claim, cells, markdown
from benchmarks.claims.plot import plot
from repair_ray.run import write_json

RESULTS = Path(__file__).parents[1] / "results" / "claims"
TABLES: dict[str, Callable[[int, Path, list[str]], Claim]] = {
    "main": world.main,
    "ablations": world.ablations,
    "budget": world.budget,
    "minimal_pairs": world.minimal_pairs,
    "rounds": world.rounds,
    "saft": saft.world,
    "saft_emoji": saft.emoji,
    "san_emoji": san.emoji,
    "san_clips": signs.clips,
    "hncse": sentences.world_captions,
    "hncse_emoji": sentences.emoji_names,
}


def main(
    names: Annotated[list[str], typer.Argument(help=f"all, or tables: {', '.join(TABLES)}")],
    seeds: Annotated[int, typer.Option(help="how many seeds")] = 3,
    output: Annotated[Path, typer.Option(help="folder of the runs")] = Path("runs/claims"),
    emoji: Annotated[
        Path | None, typer.Option(help="folder of the emoji data; its tables are left out when unset")
    ] = None,
    setting: Annotated[list[str] | None, typer.Option("--set", help="settings of the runs, key=value")] = None,
) -> None:
    """Measure tables of claims and write them down."""
    unknown = [name for name in names if name not in (*TABLES, "all")]
    if unknown:
        raise typer.BadParameter(f"no table {unknown[0]!r}; known: all, {', '.join(TABLES)}")
    chosen = list(TABLES) if "all" in names else names
    console = Console()
    for name in chosen:
        if name.endswith("_emoji") and emoji is None:
            console.print(f"{name}: left out, since --emoji names no data")
            continue
        begun = time.monotonic()
        overrides = [*(setting or []), *([f"emoji={emoji}"] if name.endswith("_emoji") else [])]
        result = TABLES[name](seeds, output, overrides).result()
        write(result, RESULTS)
        console.print(table(result))
        console.print(f"{name}: {time.monotonic() - begun:,.0f} s in this process")


def write(result: dict[str, Any], folder: Path) -> None:
    """A table as JSON, Markdown and SVG."""
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / f"{result['name']}.json", result)
    (folder / f"{result['name']}.md").write_text(markdown(result), encoding="utf-8")
    (folder / f"{result['name']}.svg").write_text(plot(result), encoding="utf-8")


def table(result: dict[str, Any]) -> Table:
    """For the terminal."""
    measures = list(result["rows"][0]["scores"])
    view = Table(title=f"{result['title']} {result['seeds']} seeds")
    head = ["", *measures, f"{result['reference']} minus, {result['measure']}", "effect", "paper", "sign reproduced"]
    for column in head:
        view.add_column(column, justify="left" if column in ("", "paper", "sign reproduced") else "right")
    for row in result["rows"]:
        view.add_row(*cells(row, measures))
    return view


if __name__ == "__main__":
    typer.run(main)
