"""`repair-ray evaluate` on any data: retrievers measured, compared and mixed. Parses, calls, prints."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from repair_ray.cli_measures import (
    Data,
    DataSettings,
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

        retrievers = retrievers_named(target, which, pretrained, precision)
        source = source_named(target, data, split, settings)
        right = positives.value if positives else None
        return retrieval(retrievers, source, protocol=protocol.value, positives=right, seed=seed)

    report(measure, "retrieval_tables", json)


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
            [retrievers_named(name, which, pretrained, precision) for name in (target, *(seeds or []))],
            Path(str(data)),
            k=k,
            denominator=denominator.value,
            seed=seed,
        )

    def measure() -> dict[str, Any]:
        from repair_ray.measuring.retrieval import multimatch

        if seeds:
            raise DataError("--with is for the folder of a benchmark")
        retrievers = retrievers_named(target, which, pretrained, precision)
        return multimatch(
            retrievers,
            source_named(target, data, split, settings, ids),
            ground_truth=[path for path in (image_to_caption, caption_to_image) if path is not None],
            ratings=ratings,
            min_rating=min_rating,
            k=k,
            denominator=denominator.value,
        )

    if data is not None and is_benchmark(data):
        report(measure_files, "labelled_tables", json)
    else:
        report(measure, "multimatch_tables", json)


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
        return zeroshot(retrievers_named(target, which, pretrained, precision), folder, texts)

    report(measure, "zeroshot_tables", json)


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

    report(measure, "sts_tables", json, room="texts")


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
        source = source_named(run_dir, data, split, settings)
        return wise_ft(base, repaired, source, [step / steps for step in range(steps + 1)], seed=seed)

    report(measure, "wiseft_tables", json)


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

    report(measure, "comparison_tables", json)
