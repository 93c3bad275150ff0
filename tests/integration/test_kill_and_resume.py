"""`kill -9` of the driver at random moments, the same command again: the tables of a run that nothing has disturbed."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from safetensors.numpy import load_file

from repair_ray.data.store import ImageStore
from repair_ray.run import Run, read_json

pytestmark = [pytest.mark.integration, pytest.mark.whole_runs, pytest.mark.chaos]

KILLS = int(os.environ.get("REPAIR_RAY_CHAOS_KILLS", "3"))
SEED = int(os.environ.get("REPAIR_RAY_CHAOS_SEED", "0"))
STARTUP = 5.0
ORPHANS_LIVE = 90.0  # Ray's own agents take half a minute to notice
TRAININGS = ("base/training", "round-1/training", "controls/vanilla_equal_compute/training")


@pytest.fixture(scope="module")
def killed_run(small_run: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The same small run, killed at random moments and started again each time."""
    run = type(small_run)(tmp_path_factory.mktemp("killed"))
    rng = random.Random(SEED)
    products = len(small_run.manifests())
    kills = 0
    for attempt in range(KILLS):
        process = run.start(tag=f"{run.output}-{attempt}")
        # Most of a short run is starting up, so the kills are dealt out over its products, each at a random moment.
        _wait(process, lambda due=attempt * products // KILLS: len(run.manifests()) >= due)
        moment = rng.uniform(STARTUP, STARTUP + small_run.seconds / 12)
        try:
            code = process.wait(moment)
        except subprocess.TimeoutExpired:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            kills += 1
            print(f"kill {kills}, {moment:.1f} s after its cue; finished: {len(run.manifests())} of {products}")
        else:
            assert code == 0, (run.output / "log.txt").read_text()[-3000:]
            break
    assert kills > 0
    ended = run.finish()
    assert ended.returncode == 0, ended.stderr[-3000:]
    return run


def test_ray_goes_with_its_driver(killed_run: Any) -> None:
    """What Ray had started below a killed driver ends by itself; no driver waited for that before it went on."""
    deadline = time.monotonic() + ORPHANS_LIVE
    while left := _tagged(str(killed_run.output)):
        assert time.monotonic() < deadline, f"processes outlive their driver: {left}"
        time.sleep(0.5)


def test_the_same_products(small_run: Any, killed_run: Any) -> None:
    assert set(killed_run.manifests()) == set(small_run.manifests())
    assert not list(killed_run.folder.rglob("half-made"))
    assert not list(killed_run.folder.rglob("begun.json"))


def test_every_table_row_for_row(small_run: Any, killed_run: Any) -> None:
    plain, killed = Run(small_run.folder), Run(killed_run.folder)
    compared = 0
    for name, manifest in plain.products():
        if "table" not in manifest:
            continue
        compared += 1
        left, right = _rows(plain, name), _rows(killed, name)
        assert len(left) == len(right), name
        for one, other in zip(left, right, strict=True):
            _check_equal(one, other, name)
        assert killed.manifest(name)["statuses"] == manifest["statuses"]
        assert killed.manifest(name)["reasons"] == manifest["reasons"]
    assert compared == 12


def test_training_goes_on_and_repeats_nothing(small_run: Any, killed_run: Any) -> None:
    for name in TRAININGS:
        left, right = (read_json(run.folder / name / "history.json") for run in (small_run, killed_run))
        steps = [record["step"] for record in right["history"]]
        assert steps == sorted(set(steps)) == [record["step"] for record in left["history"]]
        for key in ("steps", "best_step", "images_encoded", "texts_encoded"):
            assert left[key] == right[key]
        weights = [load_file(run.folder / name / "model.safetensors") for run in (small_run, killed_run)]
        for key, value in weights[0].items():
            np.testing.assert_allclose(weights[1][key], value, atol=1e-5, err_msg=f"{name}: {key}")


def test_metrics_agree(small_run: Any, killed_run: Any) -> None:
    left, right = small_run.summary(), killed_run.summary()
    assert right["base"] == left["base"]
    for key in ("failures", "verdicts", "error_types", "edits", "truth", "metrics"):
        assert right["rounds"][0][key] == left["rounds"][0][key]
    assert right["controls"] == left["controls"]


def _wait(process: subprocess.Popen[bytes], ready: Callable[[], bool]) -> None:
    while process.poll() is None and not ready():
        time.sleep(0.1)


def _rows(run: Run, name: str) -> list[dict[str, Any]]:
    """Rows in the order of the table, with pictures by content: which shard they lie in is chance."""
    store = ImageStore(str(run.folder))
    table: pa.Table = run.read(name)
    return [_by_content(row, store) for row in table.to_pylist()]


def _by_content(row: dict[str, Any], store: ImageStore) -> dict[str, Any]:
    kept = {key: value for key, value in row.items() if key not in ("uri", "offset", "length")}
    if "source" in row:
        kept["source"] = row["source"].removeprefix(store.root)
    if row.get("uri"):
        kept["picture"] = store.bytes(row["uri"], row["offset"], row["length"])
    if row.get("candidates"):
        kept["candidates"] = [_by_content(candidate, store) for candidate in row["candidates"]]
    return kept


def _check_equal(left: Any, right: Any, where: str) -> None:
    """Equal values; floats to the noise of sums in another order."""
    if isinstance(left, dict):
        assert set(left) == set(right), where
        for key in left:
            _check_equal(left[key], right[key], f"{where}.{key}")
    elif isinstance(left, list):
        assert len(left) == len(right), where
        for one, other in zip(left, right, strict=True):
            _check_equal(one, other, where)
    elif isinstance(left, float):
        assert right == pytest.approx(left, abs=1e-5), where
    else:
        assert right == left, where


def _tagged(tag: str) -> list[str]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if f"REPAIR_RAY_TAG={tag}".encode() in (process / "environ").read_bytes():
                found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")[:100])
        except OSError:
            continue
    return found
