"""`repair-ray review`: people check a run's edits. Parses, calls, prints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from repair_ray.cli_errors import guarded

app = typer.Typer()


@app.command()
def review(
    run_dir: Annotated[Path, typer.Argument(help="run directory, such as runs/demo")],
    annotator: Annotated[
        list[str] | None, typer.Option(help="who answers; several for a page each, unset: chosen on the page")
    ] = None,
    sample: Annotated[int | None, typer.Option(min=1, help="edits of the round to review; 200 when unset")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="draws the sample; 0 when unset")] = None,
    round_: Annotated[
        int | None, typer.Option("--round", min=1, help="the round whose edits; unset: the last, of --stats all")
    ] = None,
    open_: Annotated[bool, typer.Option("--open", help="show the judge's verdicts and what others answered")] = False,
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any that is free")] = 0,
    stats: Annotated[bool, typer.Option("--stats", help="print what the answers come to, and end")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="--stats for programs")] = False,
) -> None:
    """Check accepted edits on a page of this machine: five questions each, y, n and u.

    All annotators see the same sample, stratified by direction and error type. Each answer is kept at once, in the
    run's folder review. `--stats` tells precision by criterion and how far annotators agree; the setting
    `review.exclude` has training leave out what was refused, `audit.examples` shows the judge what was said.
    """

    def work() -> None:
        from repair_ray.run import RunError

        if as_json and not stats:
            raise RunError("--json goes with --stats")
        if stats and (annotator or open_ or sample is not None or seed is not None):
            raise RunError("--stats tells of all answers: it goes with --round and --json alone")
        if stats:
            _stats(run_dir, round_, as_json)
        else:
            _serve(run_dir, annotator or [], sample, seed, round_, open_, port)

    guarded(work, "stopped; every answer is kept")


def _serve(
    run_dir: Path, names: list[str], sample: int | None, seed: int | None, number: int | None, open_: bool, port: int
) -> None:
    from repair_ray.judging import run_config_of
    from repair_ray.repair_review.edits import ANSWERS, round_of
    from repair_ray.repair_review.page import EditReview
    from repair_ray.review.serve import serve_form
    from repair_ray.run import Run

    run = Run(run_dir)
    config = run_config_of(run)
    task = EditReview(run, config, round_of(run, number), sample, seed)
    console = Console()
    console.print(f"{task.title}: {len(task.items)} edits. Ctrl-C ends it.", soft_wrap=True, markup=False)
    serve_form(
        task,
        run.path(ANSWERS),
        names,
        port,
        lambda name, address: console.print(f"{name or 'open'}: {address}", soft_wrap=True, markup=False),
        everything=open_,
    )


def _stats(run_dir: Path, number: int | None, as_json: bool) -> None:
    from repair_ray.judging import run_config_of
    from repair_ray.repair_review.stats import stats_of
    from repair_ray.report.review import stats_tables
    from repair_ray.run import Run

    run = Run(run_dir)
    run_config_of(run)
    facts = stats_of(run, number)
    if as_json:
        print(json.dumps(facts, ensure_ascii=False, indent=1))
        return
    console = Console()
    for table in stats_tables(facts):
        console.print(table)
