"""SAN on signed weather reports: are negatives that look alike worth more than random ones, or ones that mean alike?

`python -m benchmarks.claims_clips` runs `repair-ray san demo` for several seeds of the world and of training. The
oracle of the fine-grained test is the world's own list of signs that look alike, which no retriever sees. All train for
as many steps: `random` on as many negatives as SAN, `meaning` on those that its list gives, `vanilla` without any.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from repair_ray.cli_san import SIGNS
from repair_ray.clips.job import run_clips
from repair_ray.config import load_section
from repair_ray.evaluation.statistics import mean_interval
from repair_ray.sections.clips import ClipsConfig

VARIANTS = ("base", "san", "vanilla", "random", "meaning")
FIGURES = ("fine", "i2t", "t2i")


def run(seed: int, output: Path, overrides: list[str] | None = None) -> dict[str, dict[str, float]]:
    """R@1 in percent of each variant: `fine` (fine-grained), `i2t` (a clip finds its caption) and `t2i`.

    A run that is finished is read, one that was stopped goes on where it was.
    """
    settings = [f"name=seed-{seed}", f"output={output}", f"seed={seed}", f"data.world.seed={seed}", *(overrides or [])]
    summary = run_clips(load_section(ClipsConfig, SIGNS, settings))
    if summary["circular"]:
        raise RuntimeError(f"the oracle is not independent: {summary['circular']}")
    found = summary["variants"]
    return {name: {figure: found[name][figure]["r@1"] for figure in FIGURES} for name in VARIANTS}


def compare(runs: list[dict[str, dict[str, float]]]) -> dict[str, dict[str, Any]]:
    """For each variant the mean of its figures, and SAN minus it in each seed with the 95 % t interval over seeds."""
    return {
        name: {
            **{figure: round(mean_interval([one[name][figure] for one in runs])[0], 2) for figure in FIGURES},
            "san_minus": [round(one["san"]["fine"] - one[name]["fine"], 2) for one in runs],
            "interval": mean_interval([one["san"]["fine"] - one[name]["fine"] for one in runs]),
        }
        for name in VARIANTS
    }


def main(
    seeds: Annotated[int, typer.Option(help="how many seeds")] = 3,
    output: Annotated[Path, typer.Option(help="folder of the runs")] = Path("runs/claims_clips"),
    overrides: Annotated[list[str] | None, typer.Argument(help="settings as key=value")] = None,
) -> None:
    """Run all seeds and print the table."""
    found = compare([run(seed, output, overrides) for seed in range(seeds)])
    view = Table(title=f"R@1 in percent, mean of {seeds} seeds")
    for column in (
        "",
        "fine-grained",
        "clip to caption",
        "caption to clip",
        "SAN minus, fine-grained",
        "95 % interval",
    ):
        view.add_column(column, justify="left" if not column else "right")
    for name, row in found.items():
        mean, low, high = row["interval"]
        minus = ("", "") if name == "san" else (f"{mean:+.1f}", f"{low:+.1f} to {high:+.1f}")
        view.add_row(name, *(f"{row[figure]:.1f}" for figure in FIGURES), *minus)
    Console().print(view)


if __name__ == "__main__":
    typer.run(main)
