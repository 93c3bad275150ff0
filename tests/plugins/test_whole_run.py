"""A package that pip has installed adds one of each kind to a run, which is stale once a new version is there."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from repair_ray.data.store import ImageStore
from repair_ray.run import Run
from tests.integration.conftest import OVERRIDES, ROOT
from tests.plugins.installed import ACME

pytestmark = [pytest.mark.integration, pytest.mark.whole_runs]

PLUGINS = (
    "audit.language={backend: lenient, backend_settings: {confidence: 0.25}}",
    "edit.image_editor=mirror",
    "edit.image_editor_settings.quality=95",
    "edit.candidates=1",
    "selection.min_scaffold=-1.0",
    "objective.spread={weight: 0.5, power: 4}",
    "mining.budget=20",
    "controls=[]",
    "training.steps=8",
    "training.validate_every=8",
    "variants={written: {strategy: prefixed, strategy_settings: {prefix: look}}, "
    "shuffled: {strategy: shuffled, objective: {fine_grained: true}}}",
)


def pip_install(source: Path, folder: Path) -> None:
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index"]
    options = ["--no-deps", "--no-build-isolation", "--upgrade", "--target", str(folder), str(source)]
    subprocess.run([*command, *options], check=True, capture_output=True, text=True)


def repair(output: Path, site: Path, *extra: str) -> subprocess.CompletedProcess[str]:
    config = str(ROOT / "jobs" / "smoke.yaml")
    command = [sys.executable, "-m", "repair_ray", "run", config, "name=plugged", f"output={output}"]
    paths = os.pathsep.join([str(ROOT), str(site)])
    return subprocess.run(
        [*command, *OVERRIDES, *PLUGINS, *extra],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=900,
        env={**os.environ, "PYTHONPATH": paths},
    )


def recipe(run: Run, product: str) -> dict[str, dict[str, str]]:
    manifest = run.manifest(product)
    assert manifest is not None
    return manifest["recipe"]["settings"]


def test_one_of_each_kind(tmp_path: Path) -> None:
    source, site = tmp_path / "source", tmp_path / "site"
    shutil.copytree(ACME, source)
    pip_install(source, site)
    ended = repair(tmp_path, site)
    assert ended.returncode == 0, ended.stderr[-3000:]
    run = Run(tmp_path / "plugged")

    verdicts = run.read("round-1/verdicts").to_pylist()
    assert {(row["judge"], row["judgement"], row["confidence"]) for row in verdicts} == {("lenient", "valid", 0.25)}
    store = ImageStore(root=str(run.folder), background=(255, 255, 255), max_pixels=10**7, max_bytes=10**7)
    images = {row["image_id"]: row for row in run.read("data/images").to_pylist()}
    edits = [
        row for row in run.read("round-1/edits").to_pylist() if row["direction"] == "t2i" and row["status"] == "ok"
    ]
    assert edits
    for row in edits:
        before = images[row["candidate_id"]]
        source_picture, edited = (store.bytes(r["uri"], r["offset"], r["length"]) for r in (before, row))
        left, right = (
            np.asarray(Image.open(io.BytesIO(data)).convert("RGB"), float) for data in (source_picture, edited)
        )
        assert np.abs(left[:, ::-1] - right).mean() < min(8.0, np.abs(left - right).mean())
    written = [row for row in run.read("controls/written/edits").to_pylist() if row["direction"] == "i2t"]
    assert {row["text"].split()[0] for row in written if row["status"] == "ok"} == {"look"}
    negatives = [row for row in run.read("controls/shuffled/edits").to_pylist() if row["status"] == "ok"]
    captions = {row["caption_id"]: row["text"] for row in run.read("data/captions").to_pylist()}
    assert negatives
    assert all(sorted(row["text"].split()) == sorted(captions[row["candidate_id"]].split()) for row in negatives)

    acme = {"package": "acme-repair", "version": "1.0"}
    assert recipe(run, "round-1/verdicts")["language"]["plugin"] == {"name": "lenient", **acme}
    assert recipe(run, "round-1/edits")["edit"]["plugin"] == {"name": "mirror", **acme}
    assert recipe(run, "controls/written/edits")["plugin"] == {"name": "prefixed", **acme}
    assert recipe(run, "round-1/training")["plugins"] == {"spread": {"name": "spread", **acme}}
    assert "plugin" not in json.dumps(recipe(run, "round-1/failures"))

    assert repair(tmp_path, site).returncode == 0
    project = source / "pyproject.toml"
    project.write_text(project.read_text().replace('version = "1.0"', 'version = "1.1"'))
    shutil.rmtree(site)
    pip_install(source, site)
    stale = repair(tmp_path, site)
    assert stale.returncode == 2
    assert "round-1/verdicts" in stale.stderr
    assert "language.plugin.version was '1.0', is now '1.1'" in stale.stderr
    shutil.rmtree(site)
    gone = repair(tmp_path, site)
    assert gone.returncode == 2
    assert "there is no judge 'lenient'" in gone.stderr
