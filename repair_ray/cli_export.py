"""`repair-ray export`: hard pairs and retrievers of a run for other tools. Parses, calls, prints."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console

from repair_ray.cli_errors import errors, guarded

if TYPE_CHECKING:
    from repair_ray.config import Config
    from repair_ray.run import Run

app = typer.Typer(help="Hard pairs and models of a run, in the formats of other tools.", no_args_is_help=True)

RunDir = Annotated[Path, typer.Argument(help="run directory, such as runs/demo")]
Out = Annotated[Path, typer.Argument(help="folder to write; it appears when it is whole")]
Rounds = Annotated[int | None, typer.Option("--round", min=1, help="the edits of this round; unset: of all rounds")]
Round = Annotated[int | None, typer.Option("--round", min=1, help="the round that trained it; unset: the last")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="replace an earlier export in that folder")]
Push = Annotated[str | None, typer.Option(help="upload to this repository of the Hugging Face hub (org/name)")]
Public = Annotated[bool, typer.Option("--public", help="make a new repository public; without it, private")]

STOPPED = "stopped; nothing was left behind"


@app.command()
def pairs(
    run_dir: RunDir,
    out: Out,
    format: Annotated[
        str, typer.Option(help="webdataset, tripletclip, negclip, csv, hf, sentence-transformers or jsonl")
    ],
    round_: Rounds = None,
    overwrite: Overwrite = False,
    shard_mb: Annotated[int, typer.Option(min=1, help="MiB of one tar or Parquet file")] = 256,
    push: Push = None,
    public: Public = False,
) -> None:
    """The accepted edits as pairs with hard negatives, both directions, and a card that tells what they are.

    webdataset: tar shards for open_clip's trainer. tripletclip, negclip: what these trainers read. csv: open_clip's
    table of paths and captions, the data's own pairs first. hf: a Hugging Face data set. sentence-transformers:
    triplets. jsonl: all that is known of each pair.
    """

    def export(run: Run, config: Config) -> dict[str, Any]:
        from repair_ray.export.dataset import export_pairs

        made = export_pairs(
            run,
            config,
            out,
            format,
            round_=round_,
            overwrite=overwrite,
            shard_mb=shard_mb,
        )
        Console().print(f"{out}: " + _told(made["written"]), soft_wrap=True, markup=False)
        return made

    guarded(lambda: _export(run_dir, out, export, overwrite, push, public, "dataset"), STOPPED)


@app.command()
def model(
    run_dir: RunDir,
    out: Out,
    format: Annotated[str, typer.Option(help="open_clip, open_clip-pt or hf (a transformers CLIPModel)")] = "open_clip",
    which: Annotated[str, typer.Option(help="repaired or base")] = "repaired",
    round_: Round = None,
    overwrite: Overwrite = False,
    push: Push = None,
    public: Public = False,
) -> None:
    """The repaired retriever (or the base) with its config, preprocessing and tokenizer, in fp32.

    open_clip: safetensors, for open_clip's local-dir: and hf-hub: names. open_clip-pt: a .pt file for
    create_model(name, pretrained=path). hf: CLIPModel and CLIPProcessor, where the architecture is plain CLIP.
    """

    def export(run: Run, config: Config) -> dict[str, Any]:
        from repair_ray.export.model import export_model

        made = export_model(
            run,
            config,
            out,
            format,
            which=which,
            round_=round_,
            overwrite=overwrite,
        )
        Console().print(f"{out}: {made['parameters']:,} parameters", soft_wrap=True, markup=False)
        return made

    guarded(lambda: _export(run_dir, out, export, overwrite, push, public, "model"), STOPPED)


def _export(
    run_dir: Path,
    out: Path,
    export: Callable[[Run, Config], dict[str, Any]],
    overwrite: bool,
    push: str | None,
    public: bool,
    kind: Literal["dataset", "model"],
) -> None:
    from repair_ray.export import hub
    from repair_ray.export.folder import check_out
    from repair_ray.judging import run_config_of
    from repair_ray.run import Run

    run = Run(run_dir)
    config = run_config_of(run)
    # What is wrong with where it goes is told before any work is done.
    check_out(out, overwrite)
    if push is not None:
        hub.check_push(push)
    with errors.status("exporting"):
        export(run, config)
    if push is not None:
        with errors.status(f"uploading to {push}"):
            where = hub.push(out, push, kind, public=public)
        Console().print(f"uploaded: {where}", soft_wrap=True, markup=False)


def _told(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items())
