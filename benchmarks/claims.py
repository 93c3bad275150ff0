"""Does repair beat its controls? `python -m benchmarks.claims --seeds 3`

Runs the demo with its controls for several seeds (of the world and of training), and writes the differences with
their t intervals over seeds. A run that was stopped goes on where it was.
"""

from __future__ import annotations

import json
import subprocess
import sys
from math import isfinite
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from repair_ray.evaluation.statistics import mean_interval
from repair_ray.run import write_json

RESULTS = Path(__file__).parent / "results"
CONTROLS = (
    "vanilla_equal_compute",
    "vanilla_equal_steps",
    "mined",
    "error_agnostic",
    "placement_local",
)
DIRECTIONS = ("i2t", "t2i", "mean")


def main(
    seeds: Annotated[int, typer.Option(help="how many seeds")] = 3,
    output: Annotated[Path, typer.Option(help="folder of the runs")] = Path("runs/claims"),
    overrides: Annotated[list[str] | None, typer.Argument(help="settings as key=value")] = None,
) -> None:
    """Run all seeds and write benchmarks/results/claims.json and claims.md."""
    summaries = [_run(seed, output, overrides or []) for seed in range(seeds)]
    result = compare(summaries)
    RESULTS.mkdir(exist_ok=True)
    write_json(RESULTS / "claims.json", result)
    (RESULTS / "claims.md").write_text(markdown(result), encoding="utf-8")
    Console().print(table(result))


def _run(seed: int, output: Path, overrides: list[str]) -> dict[str, Any]:
    name = f"seed-{seed}"
    settings = [f"name={name}", f"output={output}", f"seed={seed}", f"data.world.seed={seed}", *overrides]
    command = [sys.executable, "-m", "repair_ray", "demo", *settings, "--controls", ",".join(CONTROLS)]
    subprocess.run(command, check=True)
    return dict(json.loads((output / name / "summary.json").read_text(encoding="utf-8")))


def r1(metrics: dict[str, Any]) -> dict[str, float]:
    """R@1 by direction, and their mean."""
    i2t, t2i = metrics["i2t"]["r@1"], metrics["t2i"]["r@1"]
    return {"i2t": i2t, "t2i": t2i, "mean": (i2t + t2i) / 2}


def compare(summaries: list[dict[str, Any]]) -> dict[str, Any]:
    """Mean R@1 of every variant over seeds, and repair minus each of them with its 95 % t interval."""
    variants = {"base": [r1(s["base"]["metrics"]) for s in summaries]}
    variants["repair"] = [r1(s["rounds"][0]["metrics"]) for s in summaries]
    for control in CONTROLS:
        variants[control] = [r1(s["controls"][control]["metrics"]) for s in summaries]
    rows = []
    for name, scores in variants.items():
        row: dict[str, Any] = {
            "name": name,
            "r@1": {d: round(mean_interval([s[d] for s in scores])[0], 2) for d in DIRECTIONS},
        }
        if name != "repair":
            row["repair_minus"] = {
                d: _interval([r[d] - s[d] for r, s in zip(variants["repair"], scores, strict=True)]) for d in DIRECTIONS
            }
        rows.append(row)
    return {
        "seeds": len(summaries),
        "images": summaries[0]["evaluation"]["images"],
        "rows": rows,
        "truth": [s["rounds"][0]["truth"] for s in summaries],
        "pairs": [s["rounds"][0]["edits"]["accepted"] for s in summaries],
        "items": [{name: s["training"][name]["items_encoded"] for name in s["training"]} for s in summaries],
    }


def _interval(differences: list[float]) -> list[float | None]:
    """Mean, low, high; no bounds from one seed."""
    return [round(value, 2) if isfinite(value) else None for value in mean_interval(differences)]


def table(result: dict[str, Any]) -> Table:
    """For the terminal."""
    view = Table(title=f"R@1 over {result['seeds']} seeds; repair minus each, with 95 % interval")
    for column in ("", "i2t", "t2i", "repair minus, i2t", "repair minus, t2i", "repair minus, mean"):
        view.add_column(column, justify="left" if not column else "right")
    for row in result["rows"]:
        view.add_row(*_cells(row))
    return view


def markdown(result: dict[str, Any]) -> str:
    """For the README."""
    lines = [
        f"R@1 on {result['images']:,} unseen scenes, mean of {result['seeds']} seeds; "
        "in brackets the 95 % t interval over seeds.",
        "",
        "| | i2t | t2i | repair minus, i2t | repair minus, t2i | repair minus, mean |",
        "|---|---|---|---|---|---|",
    ]
    return "\n".join([*lines, *("| " + " | ".join(_cells(row)) + " |" for row in result["rows"])]) + "\n"


def _cells(row: dict[str, Any]) -> list[str]:
    minus = row.get("repair_minus") or {}
    return [
        row["name"].replace("_", " "),
        *(f"{row['r@1'][d]:.1f}" for d in ("i2t", "t2i")),
        *(_difference(*minus[d]) if minus else "" for d in DIRECTIONS),
    ]


def _difference(mean: float, low: float | None, high: float | None) -> str:
    return f"{mean:+.1f}" if low is None or high is None else f"{mean:+.1f} [{low:+.1f}, {high:+.1f}]"


if __name__ == "__main__":
    typer.run(main)
