"""`repair-ray text`: text towers trained on sentences alone. Parses, calls, prints."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from repair_ray.cli_errors import guarded
from repair_ray.config import TextConfig, load_section

app = typer.Typer(help="Train text towers on sentences alone.", no_args_is_help=True)


@app.callback()
def text() -> None:
    """Train text towers on sentences alone."""


@app.command()
def run(
    config: Annotated[Path, typer.Argument(help="YAML file of settings of a text-only run")],
    overrides: Annotated[
        list[str] | None, typer.Argument(help="settings as key=value, such as training.lr=1e-4")
    ] = None,
    redo: Annotated[list[str] | None, typer.Option(help="make this stage, and all that hangs on it, again")] = None,
) -> None:
    """SimCSE, with positive mixing, hard-negative mixing, both or none. The same command again goes on."""

    def work() -> None:
        loaded = load_section(TextConfig, config, overrides)
        os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", ".*")
        # Ray and torch take seconds to import: a wrong setting is told before that.
        from repair_ray.report.console import ProgressView
        from repair_ray.report.texts import text_run_tables
        from repair_ray.text_run import run_texts

        with ProgressView() as view:
            summary = run_texts(loaded, redo=redo, progress=view)
        console = Console()
        for table in text_run_tables(summary):
            console.print(table)
        folder = loaded.run_dir
        console.print(f"model:   local-dir:{folder / 'training'}\nsummary: {folder / 'summary.json'}", soft_wrap=True)

    guarded(work)
