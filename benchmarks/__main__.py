"""Stages of the engine beside their peers, by name: `python -m benchmarks embed search`, or `all`; `--quick` checks.

Rows go to benchmarks/results/throughput.json and throughput.md as each benchmark ends; those of `--quick` to
`runs/benchmarks/quick.json`, since they mean nothing. What cannot be made in this environment is skipped, and told.
"""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Protocol, cast

import typer
from rich.console import Console

from benchmarks.rows import RESULTS, Row, Skipped, keep, view
from benchmarks.turns import Settings

# Each is a module with `rows`.
BENCHMARKS = {
    "embed": "benchmarks.embed",
    "search": "benchmarks.search",
    "mining": "benchmarks.mining",
    "language": "benchmarks.language",
    "edit": "benchmarks.edit",
    "stream": "benchmarks.stream",
    "train": "benchmarks.train",
    "select": "benchmarks.select",
    "ingest": "benchmarks.ingest",
    "round": "benchmarks.growth",
    "scale": "benchmarks.scale",
}
ALL = "all"
FAILED, SKIPPED = 1, 3


class Benchmark(Protocol):
    """A module of a benchmark."""

    def rows(self, settings: Settings) -> Iterator[Row]:
        """Measure; raises `Skipped` where it cannot be done here."""
        ...


def main(
    names: Annotated[list[str], typer.Argument(help=f"of {', '.join(BENCHMARKS)}; or {ALL}")],
    quick: Annotated[bool, typer.Option(help="toy sizes: does it work? The figures mean nothing")] = False,
    pairs: Annotated[int | None, typer.Option(min=1, help="turns of each side; unset: 5, quick: 2")] = None,
    threads: Annotated[int, typer.Option(min=1, help="of each side")] = os.cpu_count() or 1,
    items: Annotated[int | None, typer.Option(min=10, help="queries and gallery of search and mining")] = None,
    folder: Annotated[Path, typer.Option(help="of runs and models; what it holds of a benchmark is removed")] = Path(
        "runs/benchmarks"
    ),
    results: Annotated[Path | None, typer.Option(help="JSON file of the rows, with a .md beside it")] = None,
) -> None:
    """Measure benchmarks one after the other, each in a process of its own."""
    unknown = [name for name in names if name not in (*BENCHMARKS, ALL)]
    if unknown:
        raise typer.BadParameter(f"no benchmark is called {unknown[0]}; there are {', '.join(BENCHMARKS)} and {ALL}")
    target = results or (folder / "quick.json" if quick else RESULTS / "throughput.json")
    settings = Settings(quick, folder, threads, pairs or (2 if quick else 5), items)
    if len(names) == 1 and names[0] != ALL:
        raise typer.Exit(one(names[0], settings, target))
    ended = {name: _apart(name, settings, target) for name in (BENCHMARKS if ALL in names else names)}
    for name, code in ended.items():
        print(f"{name}: {'done' if code == 0 else 'skipped' if code == SKIPPED else f'failed with {code}'}")
    raise typer.Exit(FAILED if any(code not in (0, SKIPPED) for code in ended.values()) else 0)


def one(name: str, settings: Settings, target: Path) -> int:
    """Measure one benchmark in this process, and keep its rows; returns the exit status."""
    # Ray's workers step back for other processes, which no peer does: all have the same claim on the cores.
    os.environ.setdefault("RAY_worker_niceness", "0")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    own = replace(settings, folder=settings.folder / name)
    shutil.rmtree(own.folder, ignore_errors=True)
    own.folder.mkdir(parents=True)
    begun, made = time.monotonic(), []
    try:
        for row in cast(Benchmark, importlib.import_module(BENCHMARKS[name])).rows(own):
            made.append(row)
            keep([row], target)
    except Skipped as reason:
        print(f"{name}: skipped: {reason}")
        return 0 if made else SKIPPED
    finally:
        shutil.rmtree(own.folder, ignore_errors=True)
        if made:
            Console(width=200).print(view(made))
    print(f"{name}: {time.monotonic() - begun:.0f} s, rows in {target}")
    return 0


def _apart(name: str, settings: Settings, target: Path) -> int:
    print(f"{name} ...", flush=True)
    options = ["--pairs", settings.pairs, "--threads", settings.threads, "--folder", settings.folder]
    options += ["--results", target, *(["--quick"] if settings.quick else [])]
    options += ["--items", settings.items] if settings.items else []
    return subprocess.run([sys.executable, "-m", "benchmarks", name, *map(str, options)], check=False).returncode


if __name__ == "__main__":
    typer.run(main)
