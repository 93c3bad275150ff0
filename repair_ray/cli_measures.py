"""What commands that measure share: their options, what these name, and how figures are shown."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from repair_ray.cli_errors import errors, guarded

if TYPE_CHECKING:
    from repair_ray.measuring.retrievers import Named
    from repair_ray.measuring.sources import Source


class Which(StrEnum):
    """Which retriever of a run."""

    base = "base"
    repaired = "repaired"
    both = "both"


class PrecisionName(StrEnum):
    """As `retriever.precision`."""

    fp32 = "fp32"
    bf16 = "bf16"
    fp16 = "fp16"


Target = Annotated[str, typer.Argument(help="run directory, or an open_clip model with --pretrained")]
Data = Annotated[
    str | None, typer.Argument(help="data as data.path in a config, or a run directory; a run's own if left out")
]
WhichOf = Annotated[Which, typer.Option(help="of a run: the retriever before repair, after it, or both")]
Pretrained = Annotated[str | None, typer.Option(help="of a model: an open_clip tag, or a checkpoint file")]
Precision = Annotated[PrecisionName | None, typer.Option(help="of a model: the type of its weights")]
Split = Annotated[str | None, typer.Option(help="split to measure on; a run's evaluation split, or test")]
DataSettings = Annotated[
    list[str] | None, typer.Option("--data", help="key=value of a config's data section, such as image_root=/x")
]
ImageRoot = Annotated[Path, typer.Option(help="folder of the pictures that the file names")]
Seed = Annotated[int, typer.Option(min=0, help="the same seed draws the same")]
Json = Annotated[Path | None, typer.Option("--json", help="write the figures to this file too")]


def retrievers_named(target: str, which: Which, pretrained: str | None, precision: PrecisionName | None) -> list[Named]:
    """The retrievers that a command names."""
    from repair_ray.measuring.retrievers import retrievers_of

    return retrievers_of(target, which.value, pretrained, precision.value if precision else None)


def source_named(
    target: str, data: str | None, split: str | None, settings: list[str] | None, ids: Path | None = None
) -> Source:
    """The data that a command names, or the run's own."""
    from repair_ray.measuring.retrievers import is_run, run_of
    from repair_ray.measuring.sources import source_of

    own = run_of(target) if is_run(target) else None
    return source_of(data, own, split, settings or [], ids)


def report(measure: Callable[[], dict[str, Any]], tables: str, json: Path | None, room: str = "measuring") -> None:
    """Measure, print the tables of that name (of that module of `report`), write the figures."""

    def work() -> None:
        with errors.status("measuring"):
            facts = measure()
        from repair_ray.run import write_json

        console = Console()
        made: list[Table] = getattr(import_module(f"repair_ray.report.{room}"), tables)(facts)
        for table in made:
            console.print(table)
        if json is not None:
            write_json(json, facts)
            console.print(f"figures: {json}", soft_wrap=True, markup=False)

    guarded(work, "stopped; nothing was left behind")
