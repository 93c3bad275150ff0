"""`repair-ray multimatch`: a multi-match benchmark, from pictures and captions. Parses, calls, prints."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from repair_ray.cli_errors import guarded
from repair_ray.config import load_config

if TYPE_CHECKING:
    from repair_ray.multimatch.build import Built

app = typer.Typer(help="Build a benchmark of queries with many matches each.", no_args_is_help=True)

RunDir = Annotated[Path, typer.Argument(help="run directory of a benchmark, such as runs/bench")]
SheetSize = Annotated[int | None, typer.Option("--n", min=1, help="pairs of the run's sheet; all when unset")]
SheetSeed = Annotated[int | None, typer.Option("--seed", min=0, help="draws the sheet; the same for all annotators")]


@app.command()
def build(
    config: Annotated[Path, typer.Argument(help="YAML file of settings, with a section multimatch")],
    overrides: Annotated[list[str] | None, typer.Argument(help="settings as key=value")] = None,
    redo: Annotated[list[str] | None, typer.Option(help="make this stage, and all that hangs on it, again")] = None,
) -> None:
    """Queries, gallery, candidates, labels, overlap and figures. The same command again goes on where it stopped."""

    def make() -> None:
        loaded = load_config(config, overrides)
        os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", ".*")
        from repair_ray.multimatch.build import build
        from repair_ray.report.progress import ProgressView

        with ProgressView() as view:
            made = build(loaded, redo=redo or (), progress=view)
        _tell(made)

    guarded(make)


@app.command()
def verify(
    run_dir: RunDir,
    sheet: Annotated[Path | None, typer.Option(help="CSV file to write; pictures out of shards go beside it")] = None,
    annotator: Annotated[str | None, typer.Option(help="who will fill the sheet in")] = None,
    labels: Annotated[list[Path] | None, typer.Option(help="filled-in sheet; one for each annotator")] = None,
    n: SheetSize = None,
    seed: SheetSeed = None,
) -> None:
    """Verification by people: write a blind sheet (--sheet), or take in labels (--labels, and those of the page).

    Labels are yes (all that the query says holds of the picture), no, or unsure. Where people labelled a pair, machines
    have no vote. Without --sheet the benchmark is labelled anew. A text that a spreadsheet would run as a formula
    starts with an apostrophe.
    """

    def work() -> None:
        from repair_ray.multimatch.build import label_again, run_of
        from repair_ray.multimatch.people import take_labels, write_sheet
        from repair_ray.run import RunError

        run, loaded = run_of(run_dir)
        console = Console()
        if sheet is not None:
            if annotator is None or labels:
                raise RunError("--sheet writes a sheet for one --annotator, and goes without --labels")
            with run.locked():
                number = write_sheet(run, loaded, sheet, annotator, n, seed)
            console.print(f"{number} pairs to label: {sheet}", soft_wrap=True, markup=False)
            return
        if labels:
            with run.locked():
                console.print(f"{take_labels(run, labels)} labels are new or changed", markup=False)
        _tell(label_again(run_dir))

    guarded(work)


@app.command()
def review(
    run_dir: RunDir,
    annotator: Annotated[list[str], typer.Option(help="who labels; several for a page each")],
    n: SheetSize = None,
    seed: SheetSeed = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any that is free")] = 0,
) -> None:
    """Label the run's sheet on a page of this machine: y, n and u, b to go back. `verify` then takes the labels in."""

    def work() -> None:
        from repair_ray.multimatch.build import run_of
        from repair_ray.multimatch.people import PairReview
        from repair_ray.multimatch.products import ANNOTATIONS
        from repair_ray.review.serve import serve

        run, loaded = run_of(run_dir)
        with run.locked():
            task = PairReview(run, loaded, n, seed)
        console = Console()
        serve(
            task,
            run.path(ANNOTATIONS),
            annotator,
            port,
            lambda name, address: console.print(f"{name}: {address}", soft_wrap=True, markup=False),
        )

    guarded(work, "stopped; every label is kept")


@app.command()
def stats(run_dir: RunDir) -> None:
    """Queries, matches, candidates, agreement, completeness and overlap; also as stats.json of the run."""

    def show() -> None:
        from repair_ray.multimatch.build import Built, run_of
        from repair_ray.multimatch.stats import write_stats

        run, loaded = run_of(run_dir)
        facts, path = write_stats(run, loaded)
        _tell(Built(facts, path))

    guarded(show)


def _tell(made: Built) -> None:
    from repair_ray.report.multimatch import stats_tables

    console = Console()
    if made.waiting is not None:
        console.print(made.waiting, soft_wrap=True, markup=False)
        return
    assert made.stats is not None
    for table in stats_tables(made.stats):
        console.print(table)
    console.print(f"figures:   {made.stats_file}", soft_wrap=True, markup=False)
    if made.folder is not None:
        console.print(f"benchmark: {made.folder}", soft_wrap=True, markup=False)
