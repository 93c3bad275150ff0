"""Does the completeness interval cover the truth? `python -m benchmarks.completeness`

Simulated builds where all matches are known: on the demo's world (queries of sampled attribute combinations, the truth
of the scenes) and on emoji (captions that many pictures share). In each build other queries are drawn, and experts of
random skill, some of them nearly blind, who score a picture by the truth plus noise, part of which they share. The
union of their best, the sample outside and the interval are those that the builder makes. It needs no model and no Ray.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow.parquet as pq
import typer
from rich.console import Console
from rich.table import Table

from repair_ray.data.text import text_key
from repair_ray.evaluation.agreement import share
from repair_ray.evaluation.attributes import attribute_statistics, choose, text_of
from repair_ray.evaluation.completeness import Completeness, completeness, sample_outside, unions
from repair_ray.run import write_json
from repair_ray.world.captions import captions
from repair_ray.world.generate import make_scenes
from repair_ray.world.truth import describes

RESULTS = Path(__file__).parent / "results"
EXPERTS = 3
# What an expert's score of a match is above that of another picture, in deviations of its noise.
SKILL = (0.5, 3.5)
SHARED_NOISE = 0.5
WANTED = 0.9


@dataclass(frozen=True)
class Known:
    """All matches of many queries: bool `[queries, pictures]`."""

    name: str
    truth: np.ndarray


def main(
    builds: Annotated[int, typer.Option(help="simulated builds of each row")] = 100,
    queries: Annotated[int, typer.Option(help="queries of a build")] = 50,
    emoji: Annotated[Path | None, typer.Option(help="folder of the emoji Parquet files")] = None,
    seed: Annotated[int, typer.Option(help="of everything")] = 0,
) -> None:
    """Simulate, and write benchmarks/results/completeness.json and completeness.md."""
    sets = [world(seed)] + ([emoji_set(emoji)] if emoji is not None else [])
    rows = []
    for known in sets:
        for top, outside in ((20, 10), (20, 50), (100, 50)):
            start = time.perf_counter()
            found = [simulate(known, queries, top, outside, seed + build) for build in range(builds)]
            rows.append({**summary(known, top, outside, found), "seconds": round(time.perf_counter() - start, 2)})
    result = {"builds": builds, "queries": queries, "experts": EXPERTS, "skill": SKILL, "rows": rows}
    RESULTS.mkdir(exist_ok=True)
    write_json(RESULTS / "completeness.json", result)
    (RESULTS / "completeness.md").write_text(markdown(result), encoding="utf-8")
    Console().print(table(result))
    if any(row["covered"]["percent"] < 100 * WANTED for row in rows):
        raise typer.Exit(1)


def world(seed: int, scenes: int = 1000, queries: int = 300) -> Known:
    """Queries as the builder samples them from the captions of drawn scenes, and of which scenes they are true."""
    drawn = make_scenes(scenes, seed, 3, set())
    found = attribute_statistics([captions(scene, seed) for scene in drawn], least=3)
    texts = [text_of(combination) for combination, _ in choose(found, queries, scenes, 3, 100, seed)]
    return Known("world", np.array([[describes(text, scene) for scene in drawn] for text in texts]))


def emoji_set(folder: Path, least: int = 2) -> Known:
    """The captions of the test split that at least `least` pictures share, and the pictures that have them."""
    shared = pq.read_table(folder / "test.parquet", columns=["captions_multi"])["captions_multi"].to_pylist()
    keys = [{text_key(text) for text in texts} for texts in shared]
    every = sorted({key for own in keys for key in own})
    truth = np.array([[key in own for own in keys] for key in every])
    return Known("emoji", truth[truth.sum(axis=1) >= least])


def simulate(known: Known, queries: int, top: int, outside: int, seed: int) -> tuple[Completeness, int]:
    """One build: the estimate, and how many matches lie outside the union in truth."""
    draw = np.random.default_rng(seed)
    truth = known.truth[draw.choice(len(known.truth), min(queries, len(known.truth)), replace=False)]
    common = draw.normal(size=truth.shape)
    rankings = {}
    for expert in range(EXPERTS):
        own = draw.normal(size=truth.shape)
        noise = SHARED_NOISE * common + np.sqrt(1 - SHARED_NOISE**2) * own
        scores = draw.uniform(*SKILL) * truth + noise
        rankings[str(expert)] = np.argsort(-scores, axis=1, kind="stable")[:, :top]
    proposals = unions(rankings, len(truth))
    inside = [np.array([proposal.item for proposal in own], np.int64) for own in proposals]
    sampled = sample_outside(inside, truth.shape[1], outside * len(truth), seed)
    matched = sum(int(row[own].sum()) for row, own in zip(truth, inside, strict=True))
    estimate = completeness(
        matched,
        truth.size - sum(map(len, inside)),
        sum(map(len, sampled)),
        sum(int(row[own].sum()) for row, own in zip(truth, sampled, strict=True)),
    )
    return estimate, int(truth.sum()) - matched


def covers(estimate: Completeness, missed: int) -> bool:
    """Whether the true recall lies in the interval: it does where the number of missed matches lies in its bounds."""
    return estimate.missed_interval[0] <= missed <= estimate.missed_interval[1]


def summary(known: Known, top: int, outside: int, found: Sequence[tuple[Completeness, int]]) -> dict[str, Any]:
    """Coverage of the builds with its Wilson interval, mean recall in truth and by the estimate, mean width."""
    recalls = [100 * own.inside_matches / (own.inside_matches + missed) for own, missed in found]
    widths = [own.interval[1] - own.interval[0] for own, _ in found if own.interval]
    return {
        "set": known.name,
        "pictures": known.truth.shape[1],
        "matches_a_query": round(float(known.truth.sum(axis=1).mean()), 2),
        "top": top,
        "outside": outside,
        "recall": [round(float(value), 1) for value in (min(recalls), np.mean(recalls), max(recalls))],
        "mean_error": round(
            float(np.mean([(own.recall or 0) - r for (own, _), r in zip(found, recalls, strict=True)])), 2
        ),
        "width": round(float(np.mean(widths)), 1),
        "covered": share(sum(covers(own, missed) for own, missed in found), len(found)),
    }


def table(result: dict[str, Any]) -> Table:
    """For the terminal."""
    view = Table(title=f"{result['builds']} simulated builds of {result['queries']} queries a row")
    for column in COLUMNS:
        view.add_column(column, justify="left" if column == "set" else "right")
    for row in result["rows"]:
        view.add_row(*_cells(row))
    return view


def markdown(result: dict[str, Any]) -> str:
    """For the README."""
    lines = [f"| {' | '.join(COLUMNS)} |", "|" + "---|" * len(COLUMNS)]
    return "\n".join([*lines, *(f"| {' | '.join(_cells(row))} |" for row in result["rows"])]) + "\n"


COLUMNS = ("set", "pictures", "top", "outside", "true recall, %", "mean error", "mean width", "covered, %")


def _cells(row: dict[str, Any]) -> list[str]:
    low, mean, high = row["recall"]
    covered = row["covered"]
    return [
        row["set"],
        f"{row['pictures']:,}",
        str(row["top"]),
        str(row["outside"]),
        f"{mean:.0f} ({low:.0f}–{high:.0f})",
        f"{row['mean_error']:+.1f}",
        f"{row['width']:.1f}",
        "{:.0f} ({:.0f}–{:.0f})".format(covered["percent"], *covered["interval"]),
    ]


if __name__ == "__main__":
    typer.run(main)
