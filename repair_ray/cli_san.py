"""`repair-ray san`: negatives that look alike, on precomputed clip features. Parses, calls, prints."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from repair_ray.cli_errors import errors, guarded
from repair_ray.config import load_section
from repair_ray.sections.clips import ClipsConfig

SIGNS = Path(__file__).parent / "world" / "signs.yaml"

app = typer.Typer()


@app.command()
def san(
    config: Annotated[Path, typer.Argument(help="YAML file of settings; demo: signed weather reports, made here")],
    overrides: Annotated[list[str] | None, typer.Argument(help="settings as key=value, such as seed=1")] = None,
    redo: Annotated[list[str] | None, typer.Option(help="make this product, and all that hangs on it, again")] = None,
) -> None:
    """Train a retriever on clip features, find the signs that it takes for each other, and train with them (SAN).

    `data.path` is a Parquet with clip_id, features `[T, D]`, caption and split, or a folder of safetensors with
    `data.captions`. The same command again goes on where it stopped.
    """

    def work() -> None:
        loaded = load_section(ClipsConfig, SIGNS if str(config) == "demo" else config, overrides)
        # torch takes seconds to import: a wrong setting is told before that.
        from repair_ray.clips.job import run_clips
        from repair_ray.report.clips import clips_tables

        with errors.status("") as shown:
            summary = run_clips(
                loaded,
                redo=redo or (),
                tell=lambda product, done, total: shown.update(f"{product}: {done} of {total} steps"),
            )
        console = Console()
        for table in clips_tables(summary):
            console.print(table)
        console.print(f"summary: {Path(loaded.output) / loaded.name / 'summary.json'}", soft_wrap=True, markup=False)

    guarded(work)
