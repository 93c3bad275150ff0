"""`repair-ray evaluate`: how good a run's audit and edits are. Parses, calls, prints."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from repair_ray.cli_benchmarks import app as benchmarks_app
from repair_ray.cli_compositional import app as compositional_app
from repair_ray.cli_errors import guarded
from repair_ray.config import load_config

if TYPE_CHECKING:
    from repair_ray.run import Run

app = typer.Typer(help="How good retrievers, and the audit and the edits of a run, are.", no_args_is_help=True)
app.add_typer(benchmarks_app)
app.add_typer(compositional_app)

RunDir = Annotated[Path, typer.Argument(help="run directory, such as runs/demo")]
Round = Annotated[int | None, typer.Option("--round", min=1, help="the round that is looked at; unset: the last")]
Seed = Annotated[int, typer.Option(min=0, help="the same seed draws the same")]
Json = Annotated[Path | None, typer.Option("--json", help="write the figures to this file too")]


@app.command()
def audit(
    run_dir: RunDir,
    labels: Annotated[list[Path], typer.Argument(help="CSV or Parquet with failure_id, label and maybe annotator")],
    round_: Round = None,
    json: Json = None,
) -> None:
    """The audit by people's labels: precision, recall and kappa. `evaluate sheet` makes a sheet to label.

    Labels are valid, benign_match, bad_ground_truth or unsure. Files without annotators count as one annotator each.
    """

    def compare() -> None:
        from repair_ray.judging import audit_against_labels
        from repair_ray.report.judging import label_tables

        facts = audit_against_labels(*_round(run_dir, round_), labels)
        _tell(label_tables(facts), facts, json)

    guarded(compare)


@app.command()
def sheet(
    run_dir: RunDir,
    out: Annotated[Path, typer.Argument(help="CSV file to write; pictures out of shards go into a folder beside it")],
    n: Annotated[int, typer.Option("--n", min=1, help="failures to label")] = 200,
    seed: Seed = 0,
    round_: Round = None,
) -> None:
    """Write a random sample of failures to label, without what the judge said of them.

    i2t: is candidate_text, a caption of candidate_image, wrong of query_image (valid), or right after all
    (benign_match)? t2i: is query_text, a caption of query_image, wrong of candidate_image? bad_ground_truth: the
    query's own image and captions do not fit each other.

    A text that a spreadsheet would run as a formula starts with an apostrophe. Import failure_id as text.
    """

    def write() -> None:
        from repair_ray.judging import label_sheet

        number = label_sheet(*_round(run_dir, round_), out, n, seed)
        Console().print(f"{number} failures to label: {out}", soft_wrap=True, markup=False)

    guarded(write)


@app.command()
def consistency(
    config: Annotated[Path, typer.Argument(help="YAML file of settings of a run that has verdicts")],
    overrides: Annotated[list[str] | None, typer.Argument(help="settings as key=value")] = None,
    n: Annotated[int, typer.Option("--n", min=1, help="failures to ask about once more")] = 100,
    seed: Seed = 0,
    round_: Round = None,
    json: Json = None,
) -> None:
    """Ask the judge once more with both items in the other order: does it say the same?"""

    def compare() -> None:
        loaded = load_config(config, overrides)
        os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", ".*")
        from repair_ray.judging import order_consistency
        from repair_ray.report.console import ProgressView
        from repair_ray.report.judging import consistency_tables

        with ProgressView() as view:
            facts = order_consistency(loaded, _round(loaded.run_dir, round_)[1], n, seed, view)
        if "skipped" in facts:
            Console().print(f"nothing was asked: {facts['skipped']}", soft_wrap=True, markup=False)
        _tell([] if "skipped" in facts else consistency_tables(facts), facts, json)

    guarded(compare)


@app.command()
def blind(run_dir: RunDir, seed: Seed = 0, round_: Round = None, json: Json = None) -> None:
    """Can edited captions be told from their sources by the text alone? Then edits leave a trace to mend."""

    def read() -> None:
        from repair_ray.judging import blind
        from repair_ray.report.judging import blind_tables

        facts = blind(*_round(run_dir, round_), seed)
        _tell(blind_tables(facts), facts, json)

    guarded(read)


def _round(folder: Path, number: int | None) -> tuple[Run, str]:
    """A run, and where the round lies that is meant."""
    from repair_ray.judging import run_config_of
    from repair_ray.run import Run
    from repair_ray.stages.products import result_place

    run = Run(folder)
    run_config_of(run)
    return run, result_place(run, number)


def _tell(tables: Sequence[Table], facts: dict[str, Any], json: Path | None) -> None:
    from repair_ray.run import write_json

    console = Console()
    for table in tables:
        console.print(table)
    if json is not None:
        write_json(json, facts)
        console.print(f"figures: {json}", soft_wrap=True, markup=False)
