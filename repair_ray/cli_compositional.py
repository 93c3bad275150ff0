"""`repair-ray evaluate` on pairs that differ in little: SugarCrepe, ARO, Winoground, stress tests."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from repair_ray.cli_measures import (
    Data,
    DataSettings,
    ImageRoot,
    Json,
    Precision,
    Pretrained,
    Seed,
    Split,
    Target,
    Which,
    WhichOf,
    report,
    retrievers_named,
    source_named,
)

app = typer.Typer()


@app.command()
def sugarcrepe(
    target: Target,
    files: Annotated[Path, typer.Argument(help="folder of the seven files, or one of them")],
    image_root: ImageRoot,
    which: WhichOf = Which.both,
    pretrained: Pretrained = None,
    precision: Precision = None,
    json: Json = None,
) -> None:
    """SugarCrepe: is the caption above its negative? Pictures are COCO's val2017."""

    def measure() -> dict[str, Any]:
        from repair_ray.measuring.benchmarks import sugarcrepe

        return sugarcrepe(retrievers_named(target, which, pretrained, precision), files, image_root)

    report(measure, "sugarcrepe_tables", json)


@app.command()
def aro(
    target: Target,
    file: Annotated[
        Path, typer.Argument(help="visual_genome_relation.json, visual_genome_attribution.json, or an order file")
    ],
    image_root: ImageRoot,
    which: WhichOf = Which.both,
    pretrained: Pretrained = None,
    precision: Precision = None,
    leave_out: Annotated[
        Path | None, typer.Option(help="relations to leave out of the average, one a line (the paper: those both ways)")
    ] = None,
    json: Json = None,
) -> None:
    """ARO: relations, attributes or word order, macro averaged."""

    def measure() -> dict[str, Any]:
        from repair_ray.measuring.benchmarks import aro

        names = leave_out.read_text(encoding="utf-8").splitlines() if leave_out else []
        left = frozenset(name.strip() for name in names if name.strip())
        return aro(retrievers_named(target, which, pretrained, precision), file, image_root, left)

    report(measure, "aro_tables", json)


@app.command()
def winoground(
    target: Target,
    file: Annotated[Path, typer.Argument(help="examples.jsonl")],
    image_root: ImageRoot,
    which: WhichOf = Which.both,
    pretrained: Pretrained = None,
    precision: Precision = None,
    json: Json = None,
) -> None:
    """Winoground: text, image and group score."""

    def measure() -> dict[str, Any]:
        from repair_ray.measuring.benchmarks import winoground

        return winoground(retrievers_named(target, which, pretrained, precision), file, image_root)

    report(measure, "winoground_tables", json)


@app.command()
def stress(
    target: Target,
    data: Data = None,
    which: WhichOf = Which.both,
    pretrained: Pretrained = None,
    precision: Precision = None,
    split: Split = None,
    settings: DataSettings = None,
    oracle: Annotated[
        str | None,
        typer.Option(help="who says which words look alike: a CSV or Parquet of word,other, a run, or a model"),
    ] = None,
    oracle_pretrained: Annotated[str | None, typer.Option(help="of a model as oracle: tag, or checkpoint file")] = None,
    oracle_which: Annotated[Which, typer.Option(help="of a run as oracle: base or repaired")] = Which.base,
    negatives: Annotated[
        list[str] | None, typer.Option(help="key=value of a config's negatives section, such as alpha=0.3")
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--set", help="the stress set as JSON lines: read if it is there, else written")
    ] = None,
    seed: Seed = 0,
    json: Json = None,
) -> None:
    """The fine-grained stress test: is a caption above those in which one word is another that looks alike?

    The oracle should know nothing of the retrievers: where it made the negatives that they were trained on, the
    figures are circular, and say so.
    """

    def measure() -> dict[str, Any]:
        from repair_ray.measuring.retrievers import is_run, run_of
        from repair_ray.measuring.stress import miners_of, negatives_section, oracle_of, stress

        retrievers = retrievers_named(target, which, pretrained, precision)
        own = run_of(target) if is_run(target) else None
        return stress(
            retrievers,
            source_named(target, data, split, settings),
            negatives_section(own, negatives or []),
            oracle=oracle_of(oracle, oracle_which.value, oracle_pretrained) if oracle else None,
            file=file,
            miners=miners_of(own[0]) if own else (),
            seed=seed,
        )

    report(measure, "stress_tables", json)
