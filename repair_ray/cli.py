"""The command line: parses, calls, prints."""

from __future__ import annotations

import json
import os
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.live import Live
from rich.markup import escape

from repair_ray.cli_data import app as data_app
from repair_ray.cli_errors import errors, guarded
from repair_ray.cli_evaluate import app as evaluate_app
from repair_ray.cli_export import app as export_app
from repair_ray.cli_multimatch import app as multimatch_app
from repair_ray.cli_review import app as review_app
from repair_ray.cli_san import app as san_app
from repair_ray.cli_text import app as text_app
from repair_ray.config import Config, load_config

DEMO = Path(__file__).parent / "world" / "demo.yaml"

app = typer.Typer(
    help="Turn a retriever's own mistakes into the training data that repairs them.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(evaluate_app, name="evaluate")
app.add_typer(data_app, name="data")
app.add_typer(export_app, name="export")
app.add_typer(review_app)
app.add_typer(san_app)
app.add_typer(text_app, name="text")
app.add_typer(multimatch_app, name="multimatch")

Overrides = Annotated[list[str] | None, typer.Argument(help="settings as key=value, such as training.lr=1e-4")]
Controls = Annotated[str | None, typer.Option(help="'all', 'none', or names separated by commas")]
Redo = Annotated[list[str] | None, typer.Option(help="make this stage, and all that hangs on it, again")]


@app.command()
def demo(overrides: Overrides = None, controls: Controls = None, redo: Redo = None) -> None:
    """Train a tiny retriever on drawn scenes, find its failures, repair it, and compare. No GPU, no download."""
    guarded(lambda: _run(DEMO, overrides, controls, redo))


@app.command()
def run(
    config: Annotated[Path, typer.Argument(help="YAML file of settings")],
    overrides: Overrides = None,
    controls: Controls = None,
    redo: Redo = None,
) -> None:
    """Repair a retriever: one round, or as many as the config's `rounds` say.

    The same command again goes on where it stopped; with more rounds or a larger budget, from the last round.
    """
    guarded(lambda: _run(config, overrides, controls, redo))


@app.command()
def doctor(
    config: Annotated[Path, typer.Argument(help="YAML file of settings")],
    overrides: Overrides = None,
    controls: Controls = None,
    trial: Annotated[bool, typer.Option(help="run a few rows through every stage")] = True,
) -> None:
    """Look at all that a run of this config needs, before it runs. Ends with 1 where something failed."""
    guarded(lambda: _doctor(config, overrides, controls, trial), "stopped; nothing was left behind")


@app.command()
def plan(
    config: Annotated[Path, typer.Argument(help="YAML file of settings")],
    overrides: Overrides = None,
    controls: Controls = None,
    as_json: Annotated[bool, typer.Option("--json", help="for programs")] = False,
) -> None:
    """What each stage of a run will take of the cluster, and whether it fits. Ends with 1 where something does not."""
    guarded(lambda: _plan(config, overrides, controls, as_json), "stopped; nothing was left behind")


@app.command()
def status(
    run_dir: Annotated[Path, typer.Argument(help="run directory, such as runs/demo")],
    watch: Annotated[bool, typer.Option("--watch", help="show it anew until the run ends")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="for programs; with --watch a line a look")] = False,
    every: Annotated[float, typer.Option(min=0.1, help="seconds between two looks of --watch")] = 2.0,
) -> None:
    """What a run has done, does, and has to go; from any machine that sees the storage, without Ray.

    Ends with 2 where there is no run, or a file of it cannot be read.
    """
    guarded(lambda: _status(run_dir, watch, as_json, every), "stopped looking; the run goes on")


@app.command()
def search(
    run_dir: Annotated[Path, typer.Argument(help="run directory, such as runs/demo")],
    query: Annotated[str, typer.Argument(help="a text, or the path of a picture")],
    k: Annotated[int, typer.Option("--k", min=1, help="items to show")] = 5,
    split: Annotated[str | None, typer.Option(help="the evaluated split when unset")] = None,
    page: Annotated[Path | None, typer.Option("--html", help="page to write; unset: search.html of the run")] = None,
) -> None:
    """Ask the retriever before and after its repair, side by side: a text finds images, a picture finds captions."""
    guarded(lambda: _search(run_dir, query, k, split, page))


@app.command()
def rollback(
    run_dir: Annotated[Path, typer.Argument(help="run directory, such as runs/demo")],
    round_: Annotated[int, typer.Argument(metavar="ROUND", min=0, help="the last round to keep; 0: the base alone")],
) -> None:
    """Take a run back to the end of a round; later rounds are moved to its folder .rolled-back, not deleted.

    The same `repair-ray run` as before then repairs from there; what `rounds.changes` says of later rounds may be new.
    """

    def take_back() -> None:
        from repair_ray import api

        moved, place = api.rollback(run_dir, round_)
        Console().print(f"moved to {place}: {', '.join(moved)}", soft_wrap=True, markup=False)

    guarded(take_back)


@app.command()
def report(run_dir: Annotated[Path, typer.Argument(help="run directory, such as runs/demo")]) -> None:
    """Write report.html of a finished run again."""

    def write() -> None:
        from repair_ray import api

        Console().print(f"report: {api.report(run_dir)}", soft_wrap=True, markup=False)

    guarded(write)


def _run(path: Path, overrides: list[str] | None, controls: str | None, redo: list[str] | None) -> None:
    config = load_config(path, [*(overrides or []), *_controls(controls)])
    # Ray prints the tracebacks of what it retries between our lines; its log files keep them. It reads this on import.
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", ".*")
    # Ray and torch take seconds to import: a wrong setting is told before that.
    from repair_ray import api
    from repair_ray.report.console import ProgressView, closing_tables
    from repair_ray.report.html import REPORT

    with ProgressView() as view:
        summary = api.run(config, redo=redo or (), progress=view)
    console = Console()
    for table in closing_tables(summary):
        console.print(table)
    console.print(_closing_line(config, summary))
    console.print(f"report:  {config.run_dir / REPORT}\nsummary: {config.run_dir / 'summary.json'}", soft_wrap=True)


def _doctor(path: Path, overrides: list[str] | None, controls: str | None, trial: bool) -> None:
    config = load_config(path, [*(overrides or []), *_controls(controls)])
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", ".*")
    from repair_ray.doctor import examine
    from repair_ray.report.findings import findings_table

    with errors.status("") as shown:
        found = examine(config, trial=trial, tell=lambda doing: shown.update(escape(doing)))
    Console().print(findings_table(found))
    if any(finding.state == "failed" for finding in found):
        raise typer.Exit(1)


def _plan(path: Path, overrides: list[str] | None, controls: str | None, as_json: bool) -> None:
    config = load_config(path, [*(overrides or []), *_controls(controls)])
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", ".*")
    from repair_ray.doctor.cluster import connect
    from repair_ray.planning import plan
    from repair_ray.report.plan import nodes_table, stages_table
    from repair_ray.scheduling.cluster import nodes_of

    connect()
    made = plan(config, nodes_of(config.cluster))
    told = made.as_json()
    console = Console()
    if as_json:
        console.print_json(data=told)
    else:
        console.print(nodes_table(told))
        console.print(stages_table(told))
    for problem in made.causes.values():
        errors.print(f"does not fit: {escape(problem.fact)}; {escape(problem.advice)}", soft_wrap=True)
    if made.problems:
        raise typer.Exit(1)


def _status(run_dir: Path, watch: bool, as_json: bool, every: float) -> None:
    from repair_ray.report.status import headline, status_view
    from repair_ray.status import status_of

    found, console = status_of(run_dir), Console()
    if as_json:
        print(json.dumps(found, ensure_ascii=False), flush=True)
    elif not watch or not console.is_terminal:
        console.print(status_view(found))
    if not watch:
        return
    with Live(console=console, auto_refresh=False) if console.is_terminal and not as_json else nullcontext() as live:
        while found["state"] == "running":
            if live is not None:
                live.update(status_view(found), refresh=True)
            time.sleep(every)
            found = status_of(run_dir)
            if live is None:
                print(json.dumps(found, ensure_ascii=False), flush=True) if as_json else console.print(headline(found))
        if live is not None:
            live.update(status_view(found), refresh=True)
        elif not as_json:
            console.print(status_view(found))


def _search(run_dir: Path, query: str, k: int, split: str | None, page: Path | None) -> None:
    from repair_ray.measuring.retrievers import run_of
    from repair_ray.measuring.search import search as find
    from repair_ray.report.search import PAGE, search_table, write_search

    facts = find(str(run_dir), query, k=k, split=split)
    console = Console()
    console.print(search_table(facts))
    run, config = run_of(str(run_dir))
    written = write_search(run, facts, config.data, page or run.folder / PAGE)
    console.print(f"page: {written}", soft_wrap=True, markup=False)


def _closing_line(config: Config, summary: dict[str, Any]) -> str:
    result = summary["result"]
    after = summary["rounds"][result["round"] - 1] if result["round"] else summary["base"]
    scores = {d: (summary["base"]["metrics"][d]["r@1"], after["metrics"][d]["r@1"]) for d in ("i2t", "t2i")}
    gains = ", ".join(f"{direction} R@1 {old:.1f} -> {new:.1f}" for direction, (old, new) in scores.items())
    ended = f"\nended with {'the base' if not result['round'] else 'round ' + str(result['round'])}: {result['reason']}"
    return f"{config.name}: {gains}{ended if result['reason'] else ''}"


def _controls(text: str | None) -> list[str]:
    if text is None:
        return []
    if text in ("all", "none"):
        return [f"controls={text}"]
    return [f"controls=[{', '.join(name.strip() for name in text.split(','))}]"]


def main() -> None:
    """Entry point of `repair-ray`."""
    app()


if __name__ == "__main__":
    main()
