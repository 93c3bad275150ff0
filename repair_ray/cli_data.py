"""`repair-ray data`: what a data set holds, before a run reads it. Parses, calls, prints."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from repair_ray.cli_errors import guarded

app = typer.Typer(help="Look at data sets.", no_args_is_help=True)


@app.callback()
def data() -> None:
    """Look at data sets."""


@app.command()
def inspect(
    path: Annotated[str, typer.Argument(help="file, folder, glob, {braces} or URI, as data.path")],
    format: Annotated[str | None, typer.Option(help="as data.format; detected when unset")] = None,
    image_root: Annotated[str | None, typer.Option(help="folder that relative image paths start from")] = None,
    image_column: Annotated[str | None, typer.Option(help="as data.image_column")] = None,
    caption_column: Annotated[str | None, typer.Option(help="as data.caption_column")] = None,
    group_column: Annotated[str | None, typer.Option(help="as data.group_column")] = None,
    split_column: Annotated[str | None, typer.Option(help="as data.split_column")] = None,
    id_column: Annotated[str | None, typer.Option(help="as data.id_column")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="read at most so many rows")] = None,
    pictures: Annotated[int, typer.Option(min=0, help="how many pictures are opened")] = 100,
    json: Annotated[Path | None, typer.Option("--json", help="write the facts to this file too")] = None,
) -> None:
    """Say what a run would read: format, rows by split, captions, problems by reason, and whether pictures open.

    Ends with 2 where nothing is usable.
    """

    def look() -> None:
        from repair_ray.data.inspect import inspect
        from repair_ray.data.records import DataError
        from repair_ray.report.inspection import inspection_tables
        from repair_ray.run import write_json

        facts = inspect(
            path,
            format,
            limit=limit,
            pictures=pictures,
            image_root=image_root,
            image_column=image_column,
            caption_column=caption_column,
            group_column=group_column,
            split_column=split_column,
            id_column=id_column,
        )
        console = Console()
        for table in inspection_tables(facts):
            console.print(table)
        if json is not None:
            write_json(json, facts)
            console.print(f"facts: {json}", soft_wrap=True, markup=False)
        if facts["error"]:
            raise DataError(facts["error"])

    guarded(look, "stopped")
