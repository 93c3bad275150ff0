"""What the actors did: on a terminal, and in the report's section."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from repair_ray.observing.figures import PoolSpec, Seen, pool_facts
from repair_ray.observing.meter import Record
from repair_ray.report.html import render
from repair_ray.report.pools import pool_rows, pools_table, size
from repair_ray.run import Recipe, Run

EDIT = PoolSpec("EditPictures", "EditPictures", "edit.pool", actors=4, gpus=1.0)
RULES = PoolSpec("<Audit>", "Audit", "", actors=1)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Edits by four GPUs, 75 % busy, and an audit by rules."""
    made = Run(tmp_path)
    edits = Record(0, 0, alive=400.0, setup=60.0, busy=300.0, rows_in=1_200, rows_out=1_200, output_tokens=5_000)
    seen = Seen(queue_sum=30, queue_looks=20, queue_most=9, spilled=3 * 2**29)
    for name, facts in (
        ("round-1/verdicts", [pool_facts(RULES, [Record(0, 0, alive=10.0, busy=1.0, rows_in=5)], None, 10.0)]),
        ("round-1/edits", [pool_facts(EDIT, [edits], seen, 100.0)]),
        ("base/metrics", []),
    ):
        made.ready(name, Recipe({}))
        made.finish(name, Recipe({}), 1.0, figures=facts)
    made.ready("old", Recipe({}))
    made.finish("old", Recipe({}), 1.0)
    return made


def test_rows_are_those_of_the_manifests_in_their_order(run: Run) -> None:
    assert [(row["stage"], row["pool"]) for row in pool_rows(run)] == [
        ("round-1/verdicts", "<Audit>"),
        ("round-1/edits", "EditPictures"),
    ]


def test_on_a_terminal(run: Run) -> None:
    console = Console(file=io.StringIO(), width=140)
    console.print(pools_table({"name": name, **manifest} for name, manifest in run.products()))
    assert isinstance(console.file, io.StringIO)
    (line,) = [line for line in console.file.getvalue().splitlines() if "EditPictures" in line]
    for word in ("75 %", "1 min 40 s", "12.0", "50.0", "1.5", "1.5 GiB"):
        assert word in line, word


def test_in_the_report(run: Run) -> None:
    page = render({"pools": pool_rows(run)}, "pools.html.j2")
    assert "&lt;Audit&gt;" in page and "<Audit>" not in page
    for cell in ("75 %", "1 min 40 s", "1.5 (9)", "1.5 GiB", "1,200", "edit.pool"):
        assert cell in page, cell


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0"), (512, "512 B"), (1536, "1.5 KiB"), (2**30, "1.0 GiB"), (5 * 2**40, "5.0 TiB"), (2**60, "1048576.0 TiB")],
)
def test_sizes(number: Any, text: str) -> None:
    assert size(number) == text
