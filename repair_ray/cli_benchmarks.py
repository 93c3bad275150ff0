"""`repair-ray evaluate` on any data: retrievers measured, compared and mixed. Parses, calls, prints."""

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

app = typer.Typer()


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


class ProtocolName(StrEnum):
    """The protocols of `evaluation.protocols`."""

    full = "full"
    flickr30k = "flickr30k-1k"
    coco_5k = "coco-5k"
    coco_1k = "coco-1k"


class Right(StrEnum):
    """What counts as a right answer."""

    own = "own"
    known = "known"


class Below(StrEnum):
    """The denominator of mAP@K."""

    min = "min"
    positives = "positives"


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


@app.command()
def retrieval(
    target: Target,
    data: Data = None,
    which: WhichOf = Which.both,
    pretrained: Pretrained = None,
    precision: Precision = None,
    split: Split = None,
    settings: DataSettings = None,
    protocol: Annotated[
        ProtocolName, typer.Option(help="coco-1k: mean of five folds of 1,000 images")
    ] = ProtocolName.full,
    positives: Annotated[
        Right | None, typer.Option(help="a picture's own captions, or all that are known to be right")
    ] = None,
    seed: Seed = 0,
    json: Json = None,
) -> None:
    """R@1, R@5, R@10 and MRR over the full ranking, in both directions."""

    def measure() -> dict[str, Any]:
        from repair_ray.measuring.retrieval import retrieval

        retrievers = _retrievers(target, which, pretrained, precision)
        source = _source(target, data, split, settings)
        right = positives.value if positives else None
        return retrieval(retrievers, source, protocol=protocol.value, positives=right, seed=seed)

    _report(measure, "retrieval_tables", json)


@app.command()
def multimatch(
    target: Target,
    data: Data = None,
    which: WhichOf = Which.both,
    pretrained: Pretrained = None,
    precision: Precision = None,
    split: Split = None,
    settings: DataSettings = None,
    image_to_caption: Annotated[
        Path | None, typer.Option(help="JSON of image id: [caption ids], as ECCV Caption's")
    ] = None,
    caption_to_image: Annotated[Path | None, typer.Option(help="JSON of caption id: [image ids]")] = None,
    ratings: Annotated[Path | None, typer.Option(help="CxC's sits_*.csv, in place of the two")] = None,
    min_rating: Annotated[float, typer.Option(help="a pair rated at least this is right")] = 3.0,
    ids: Annotated[
        Path | None, typer.Option(help="Karpathy or COCO JSON with the ids of pictures and captions")
    ] = None,
    k: Annotated[int, typer.Option(min=1, help="depth of mAP@K")] = 20,
    denominator: Annotated[Below, typer.Option(help="of mAP@K: min(K, right answers), or right answers")] = Below.min,
    seeds: Annotated[
        list[str] | None,
        typer.Option(
            "--with", help="the same method with another seed: mean and deviation (a benchmark's folder only)"
        ),
    ] = None,
    seed: Seed = 0,
    json: Json = None,
) -> None:
    """mAP@K, mAP@R, R-Precision and R@K where a query has many right answers.

    DATA may be the folder of a benchmark that `repair-ray multimatch build` has made.
    """
    from repair_ray.data.records import DataError
    from repair_ray.evaluation.benchmark_files import is_benchmark

    def measure_files() -> dict[str, Any]:
        from repair_ray.measuring.labelled import labelled

        if any((split, settings, image_to_caption, caption_to_image, ratings, ids)):
            raise DataError(f"{data} is a benchmark's folder, which says itself what is right: take the options out")
        return labelled(
            [_retrievers(name, which, pretrained, precision) for name in (target, *(seeds or []))],
            Path(str(data)),
            k=k,
            denominator=denominator.value,
            seed=seed,
        )

    def measure() -> dict[str, Any]:
        from repair_ray.measuring.retrieval import multimatch

        if seeds:
            raise DataError("--with is for the folder of a benchmark")
        retrievers = _retrievers(target, which, pretrained, precision)
        return multimatch(
            retrievers,
            _source(target, data, split, settings, ids),
            ground_truth=[path for path in (image_to_caption, caption_to_image) if path is not None],
            ratings=ratings,
            min_rating=min_rating,
            k=k,
            denominator=denominator.value,
        )

    if data is not None and is_benchmark(data):
        _report(measure_files, "labelled_tables", json)
    else:
        _report(measure, "multimatch_tables", json)


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

        return sugarcrepe(_retrievers(target, which, pretrained, precision), files, image_root)

    _report(measure, "sugarcrepe_tables", json)


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
        return aro(_retrievers(target, which, pretrained, precision), file, image_root, left)

    _report(measure, "aro_tables", json)


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

        return winoground(_retrievers(target, which, pretrained, precision), file, image_root)

    _report(measure, "winoground_tables", json)


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

        retrievers = _retrievers(target, which, pretrained, precision)
        own = run_of(target) if is_run(target) else None
        return stress(
            retrievers,
            _source(target, data, split, settings),
            negatives_section(own, negatives or []),
            oracle=oracle_of(oracle, oracle_which.value, oracle_pretrained) if oracle else None,
            file=file,
            miners=miners_of(own[0]) if own else (),
            seed=seed,
        )

    _report(measure, "stress_tables", json)


@app.command()
def zeroshot(
    target: Target,
    folder: Annotated[Path, typer.Argument(help="a folder of pictures for each class")],
    which: WhichOf = Which.both,
    pretrained: Pretrained = None,
    precision: Precision = None,
    templates: Annotated[Path | None, typer.Option(help="texts with {} for the class, one a line")] = None,
    json: Json = None,
) -> None:
    """Zero-shot classification, before and after repair: what has fine-tuning forgotten?"""

    def measure() -> dict[str, Any]:
        from repair_ray.data.class_folders import read_templates
        from repair_ray.evaluation.zeroshot import TEMPLATES
        from repair_ray.measuring.benchmarks import zeroshot

        texts = read_templates(templates) if templates else TEMPLATES
        return zeroshot(_retrievers(target, which, pretrained, precision), folder, texts)

    _report(measure, "zeroshot_tables", json)


@app.command()
def sts(
    target: Annotated[str, typer.Argument(help="run directory, of a text-only run too, or an open_clip model")],
    file: Annotated[
        str, typer.Argument(help="STS benchmark, SemEval's STS.input.*, or a CSV, TSV, JSON lines or Parquet of pairs")
    ],
    which: WhichOf = Which.both,
    pretrained: Pretrained = None,
    precision: Precision = None,
    columns: Annotated[
        str | None, typer.Option(help="names of the score and of both sentences, as score,sentence1,sentence2")
    ] = None,
    seed: Seed = 0,
    json: Json = None,
) -> None:
    """Sentence similarity: does the text tower rank pairs of sentences as people do? Spearman x 100."""

    def measure() -> dict[str, Any]:
        from repair_ray.data.sts import columns_named
        from repair_ray.measuring.sts import sts, text_retrievers_of

        retrievers = text_retrievers_of(target, which.value, pretrained, precision.value if precision else None)
        return sts(retrievers, file, columns_named(columns) if columns else None, seed=seed)

    _report(measure, "sts_tables", json, room="texts")


@app.command()
def wiseft(
    run_dir: Annotated[str, typer.Argument(help="run directory, such as runs/demo")],
    data: Data = None,
    split: Annotated[str, typer.Option(help="alpha is chosen here, so not the split that is reported")] = "validation",
    settings: DataSettings = None,
    steps: Annotated[int, typer.Option(min=1, help="steps from base to repaired")] = 10,
    seed: Seed = 0,
    json: Json = None,
) -> None:
    """Retrievers between base and repaired (WiSE-FT): what does each mix of both weights score?"""

    def measure() -> dict[str, Any]:
        from repair_ray.measuring.retrieval import wise_ft
        from repair_ray.measuring.retrievers import retrievers_of, run_of

        run_of(run_dir)
        base, repaired = retrievers_of(run_dir)
        source = _source(run_dir, data, split, settings)
        return wise_ft(base, repaired, source, [step / steps for step in range(steps + 1)], seed=seed)

    _report(measure, "wiseft_tables", json)


@app.command()
def compare(
    runs: Annotated[
        list[str], typer.Argument(help="run directories, or metrics in them: RUN/base, RUN/controls/mined")
    ],
    resamples: Annotated[int, typer.Option(min=100, help="bootstrap resamples")] = 2000,
    seed: Seed = 0,
    json: Json = None,
) -> None:
    """What each run gains over the first on the same queries: paired bootstrap, 95 % intervals, p-values."""

    def measure() -> dict[str, Any]:
        from repair_ray.measuring.comparison import compare_runs

        return compare_runs(runs, resamples=resamples, seed=seed)

    _report(measure, "comparison_tables", json)


def _retrievers(target: str, which: Which, pretrained: str | None, precision: PrecisionName | None) -> list[Named]:
    from repair_ray.measuring.retrievers import retrievers_of

    return retrievers_of(target, which.value, pretrained, precision.value if precision else None)


def _source(
    target: str, data: str | None, split: str | None, settings: list[str] | None, ids: Path | None = None
) -> Source:
    from repair_ray.measuring.retrievers import is_run, run_of
    from repair_ray.measuring.sources import source_of

    own = run_of(target) if is_run(target) else None
    return source_of(data, own, split, settings or [], ids)


def _report(measure: Callable[[], dict[str, Any]], tables: str, json: Path | None, room: str = "measuring") -> None:
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
