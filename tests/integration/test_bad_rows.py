"""A row that raises and a row that kills its worker process, in every stage: two status rows, and nothing else."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from repair_ray import tables
from repair_ray.config import Config, parse_config
from repair_ray.engines.retriever import RetrieverSpec
from repair_ray.run import Run, RunError
from repair_ray.stages.audit import audit
from repair_ray.stages.edit import edit
from repair_ray.stages.embed import embed
from repair_ray.stages.ingest import ingest
from repair_ray.stages.mine import mine
from repair_ray.stages.sources import sources_of
from repair_ray.world.generate import make_world

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("local_ray")]

RAISED = "RuntimeError: injected fault"
KILLED = "killed its worker process"


def _config(**faults: Any) -> Config:
    # One killing row costs two restarts, so two must be enough. No quota: a lost row frees no place for another.
    world = {"train": 24, "validation": 2, "test": 2}
    return parse_config(
        {
            "data": {"world": world},
            "retriever": {"model": "tiny-64"},
            "edit": {"image_editor": "scene", "candidates": 1},
            "mining": {"k": 2},
            "selection": {"d_i2t": 1000, "d_t2i": 1000},
            "pool": {"rows_per_block": 64},
            "faults": {"max_restarts": 2, **faults},
        }
    )


def _ingest(run: Run, config: Config) -> None:
    ingest(run, config, {}, sources_of(config.data, run.path("data/world")))


def _embed(run: Run, config: Config) -> None:
    embed(run, config, "embeddings", RetrieverSpec("tiny-64"), ("train",), ())


def _mine(run: Run, config: Config) -> None:
    mine(run, config, "failures", "embeddings")


def _audit(run: Run, config: Config) -> None:
    audit(run, config, "verdicts", "failures")


def _edit(run: Run, config: Config) -> None:
    edit(run, config, "edits", "verdicts", "failures", "embeddings", RetrieverSpec("tiny-64"))


STAGES: dict[str, Callable[[Run, Config], None]] = {
    "data/images": _ingest,
    "embeddings": _embed,
    "failures": _mine,
    "verdicts": _audit,
    "edits": _edit,
}


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Every stage without a fault."""
    run = Run(tmp_path_factory.mktemp("plain"))
    make_world(run.path("data/world"), 24, 2, 2, seed=0)
    for stage in STAGES.values():
        stage(run, _config())
    return run


def _without(plain: Run, product: str, folder: Path) -> Run:
    """A copy of the run in which a product, and all that hangs on it, has not been made yet."""
    shutil.copytree(plain.folder, folder)
    run = Run(folder)
    run.redo(product)
    return run


def _poisoned_ids(plain: Run, product: str) -> tuple[str, str]:
    """Two rows of one block that no other row depends on: accepted edits count towards their query's repetitions."""
    kind = {"embeddings": "item_id", "failures": "query_id", "data/images": "image_id"}.get(product, "failure_id")
    rows = plain.read(product).to_pylist()
    if product == "edits":
        rows = [row for row in rows if row["status"] == tables.REJECTED]
    ids = sorted({row[kind] for row in rows})
    return ids[0], ids[len(ids) // 2]


@pytest.mark.parametrize("product", STAGES)
def test_two_status_rows_and_nothing_else(plain: Run, product: str, tmp_path: Path) -> None:
    raising, killing = _poisoned_ids(plain, product)
    run = _without(plain, product, tmp_path / "run")
    STAGES[product](run, _config(poison={raising: "raise", killing: "kill"}))
    expected = _by_id(plain, product)
    made = _by_id(run, product)
    assert set(made) == set(expected)
    for identity, reason in ((raising, RAISED), (killing, KILLED)):
        (row,) = made.pop(identity)
        assert (row["status"], row["reason"]) == (tables.ERROR, reason)
        del expected[identity]
    for identity, rows in expected.items():
        assert _comparable(made[identity]) == _comparable(rows)
    statuses = run.manifest(product)["statuses"]
    assert statuses[tables.ERROR] == 2
    assert run.manifest(product)["reasons"] | {RAISED: 1, KILLED: 1} == run.manifest(product)["reasons"]


def test_a_stage_that_dies_too_often_stops_with_a_reason(plain: Run, tmp_path: Path) -> None:
    _, killing = _poisoned_ids(plain, "verdicts")
    run = _without(plain, "verdicts", tmp_path / "run")
    with pytest.raises(RunError, match=r"died more often than faults\.max_restarts allows"):
        _audit(run, _config(max_restarts=1, poison={killing: "kill"}))
    assert run.manifest("verdicts") is None


def test_a_stage_with_too_many_bad_rows_stops_with_a_reason(plain: Run, tmp_path: Path) -> None:
    run = _without(plain, "verdicts", tmp_path / "run")
    everything = dict.fromkeys(plain.read("verdicts")["failure_id"].to_pylist(), "raise")
    with pytest.raises(RunError, match=r"rows failed, more than faults\.max_error_rate=0\.5; most often: .*injected"):
        _audit(run, _config(poison=everything))
    assert run.manifest("verdicts") is None


def _by_id(run: Run, product: str) -> dict[str, list[dict[str, Any]]]:
    """Rows by the id that a fault is injected by; a query has several failures."""
    kind = {"embeddings": "item_id", "failures": "query_id", "data/images": "image_id"}.get(product, "failure_id")
    found: dict[str, list[dict[str, Any]]] = {}
    for row in run.read(product).to_pylist():
        found.setdefault(row[kind], []).append(row)
    return found


def _comparable(rows: list[dict[str, Any]]) -> list[Any]:
    """Rows as values that compare: where an edited picture lies is chance, sums of floats differ with the batch."""
    return [
        {
            key: _rounded(value)
            for key, value in row.items()
            if key not in ("uri", "offset", "length", "candidates", "source")
        }
        for row in rows
    ]


def _rounded(value: Any) -> Any:
    if isinstance(value, list):
        return [_rounded(item) for item in value]
    return pytest.approx(value, abs=1e-5) if isinstance(value, float) else value
