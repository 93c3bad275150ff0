"""A graph on real Ray: what its pools measured, in the manifest and at Ray's Prometheus endpoint."""

from __future__ import annotations

import socket
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest
import ray

from repair_ray import tables
from repair_ray.config import FaultConfig, PoolConfig
from repair_ray.observing.metrics import exported_names
from repair_ray.run import Recipe, Run, read_json
from repair_ray.stages.graph import Step, run_graph, start_ray
from repair_ray.stages.rows import Row, RowStage
from repair_ray.training.job import HISTORY
from repair_ray.training.launch import train
from tests.integration.training_job import make_job

pytestmark = pytest.mark.integration

NUMBERS = tables.Table(
    "numbers",
    pa.schema([("id", pa.string()), ("value", pa.int64()), ("status", pa.string()), ("reason", pa.string())]),
    "id",
    ("id",),
)
ROWS, BLOCK = 48, 4
SLOW, SETUP = 0.3, 0.5


class Slow(RowStage):
    """Takes its time over a batch, and says that a model was asked: 10 tokens in and 3 out for each row."""

    def setup(self, seconds: float = SLOW) -> None:
        self.seconds = seconds
        time.sleep(SETUP)

    def process(self, rows: list[Row]) -> list[Row]:
        time.sleep(self.seconds)
        self.meter.count(input_tokens=10 * len(rows), output_tokens=3 * len(rows))
        return [{**row, "status": tables.OK} for row in rows]


class Picky(RowStage):
    """Raises for the row of 5, with whose block it is asked again."""

    def setup(self) -> None:
        """Nothing to load."""

    def process(self, rows: list[Row]) -> list[Row]:
        if any(row["value"] == 5 for row in rows):
            raise ValueError("five")
        return [{**row, "status": tables.OK} for row in rows]


# The workers cannot import a test module, so its classes travel whole.
ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """Ray on this machine, which exports its metrics at this port."""
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        free = int(probe.getsockname()[1])
    ray.init("local", num_cpus=4, include_dashboard=False, log_to_driver=False, _metrics_export_port=free)
    start_ray()
    yield free
    ray.shutdown()


def exported(port: int) -> dict[tuple[str, str, str], float]:
    """Value by metric, stage and pool, of what is exported now."""
    from prometheus_client.parser import text_string_to_metric_families

    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        families = list(text_string_to_metric_families(answer.read().decode()))
    return {
        (sample.name, sample.labels.get("stage", ""), sample.labels.get("pool", "")): sample.value
        for family in families
        for sample in family.samples
        if sample.name.startswith("ray_repair_ray_") and "le" not in sample.labels
    }


def test_figures_of_a_graph(port: int, tmp_path: Path) -> None:
    run = Run(tmp_path)
    begun = time.monotonic()
    run_graph(
        run,
        "round-1/numbers",
        Recipe({}),
        NUMBERS,
        [
            Step(Slow, NUMBERS.schema, {}, PoolConfig(rows_per_block=BLOCK, num_cpus=0.5, actors=2)),
            Step(Picky, NUMBERS.schema, {}, PoolConfig(rows_per_block=BLOCK, num_cpus=0.5), "edit.pool"),
        ],
        lambda: tables.to_table([{"id": f"{n:03}", "value": n} for n in range(ROWS)], NUMBERS.schema),
        faults=FaultConfig(max_error_rate=0.1),
    )
    seconds = time.monotonic() - begun
    manifest = run.manifest("round-1/numbers") or {}
    slow, picky = manifest["figures"]
    assert (slow["pool"], slow["key"], slow["actors"], slow["processes"]) == ("Slow", "pool", 2, 2)
    assert slow["rows_in"] == slow["rows_out"] == ROWS and slow["batches"] == ROWS / BLOCK
    assert (slow["input_tokens"], slow["output_tokens"], slow["retries"]) == (10 * ROWS, 3 * ROWS, 0)
    assert ROWS / BLOCK * SLOW <= slow["busy_seconds"] < seconds
    assert 2 * SETUP <= slow["setup_seconds"] < seconds
    # All four are rounded to a millisecond, so that they may be two apart.
    times = slow["busy_seconds"] + slow["setup_seconds"] + slow["idle_seconds"]
    assert times == pytest.approx(slow["alive_seconds"], abs=2.1e-3)
    assert slow["alive_seconds"] <= 2 * slow["seconds"] <= 2 * seconds
    assert slow["queue_most"] >= 1, "two actors take two blocks each of twelve"
    assert (picky["pool"], picky["key"], picky["rows_in"], picky["retries"]) == ("Picky", "edit.pool", ROWS, 1)
    found: dict[tuple[str, str, str], float] = {}
    of = ("round-1/numbers", "Slow")
    deadline = time.monotonic() + 30
    while found.get(("ray_repair_ray_rows_in_total", *of)) != ROWS and time.monotonic() < deadline:
        time.sleep(0.5)
        found = exported(port)
    for name in ("rows_in", "rows_out", "batches", "input_tokens", "output_tokens", "busy_seconds", "setup_seconds"):
        assert found[f"ray_repair_ray_{name}_total", *of] == pytest.approx(slow[name], abs=0.01), name
    assert found["ray_repair_ray_retries_total", of[0], "Picky"] == 1
    assert found["ray_repair_ray_batch_seconds_count", *of] == ROWS / BLOCK
    # Ray exports a histogram's sum as if each value lay in the middle of its bucket: here of 0.3 to 1 s, or above it.
    assert found["ray_repair_ray_batch_seconds_sum", *of] >= ROWS / BLOCK * 0.65 - 1e-6
    assert found["ray_repair_ray_stage_rows_done", of[0], ""] == found["ray_repair_ray_stage_rows", of[0], ""] == ROWS
    assert found["ray_repair_ray_queue_blocks", *of] == 0, "the stage is over"
    assert {name for name, _, _ in found} <= set(exported_names())


def test_figures_of_a_training(port: int, tmp_path: Path) -> None:
    job = make_job(tmp_path, workers=1, steps=4, validate_every=4)
    record = train(job, lambda *_: None)
    (workers,) = record["figures"]
    assert (workers["pool"], workers["key"], workers["actors"], workers["batches"]) == ("workers", "training", 1, 4)
    assert workers["rows_in"] == record["items_encoded"]
    pace = record["pace"]
    assert [(part["step"], part["steps"]) for part in pace["by_step"]] == [(1, 1), (2, 1), (3, 1), (4, 1)]
    assert 0 < pace["compute_seconds"] == pytest.approx(workers["busy_seconds"], abs=0.01)
    assert 0 < pace["data_wait_seconds"] == pytest.approx(workers["data_wait_seconds"], abs=0.01)
    times = [workers[f"{name}_seconds"] for name in ("setup", "busy", "idle")]
    assert sum(times) == pytest.approx(workers["alive_seconds"], abs=0.01) and workers["setup_seconds"] > 0
    assert "figures" not in (read_json(Path(job.folder) / HISTORY) or {}), "two runs of one config leave the same"
    of = ("training", "workers")
    deadline = time.monotonic() + 30
    found: dict[tuple[str, str, str], float] = {}
    while found.get(("ray_repair_ray_batches_total", *of)) != 4 and time.monotonic() < deadline:
        time.sleep(0.5)
        found = exported(port)
    for name in ("batches", "busy_seconds", "data_wait_seconds", "rows_in"):
        assert found[f"ray_repair_ray_{name}_total", *of] == pytest.approx(workers[name], abs=0.01), name
    assert found["ray_repair_ray_stage_rows_done", of[0], ""] == 4
