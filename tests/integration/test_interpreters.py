"""A stage whose actors run under another interpreter: diffusers lives in an environment that the driver's lacks."""

from __future__ import annotations

import importlib.util
import os
import subprocess
from pathlib import Path

import pytest

from repair_ray import tables
from repair_ray.stages.audit import audit
from repair_ray.stages.edit import edit
from tests.integration.language_run import SPEC, config, prepare

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".venv-models" / "bin" / "python"

pytestmark = [
    pytest.mark.integration,
    pytest.mark.whole_runs,
    pytest.mark.usefixtures("local_ray"),
    pytest.mark.skipif(not PYTHON.exists(), reason="there is no .venv-models (make test makes it)"),
    pytest.mark.skipif(importlib.util.find_spec("diffusers") is not None, reason="this environment has diffusers"),
]
BUILD = (
    "import sys, pathlib; from tests.fixtures.tiny_models import flux2_klein; flux2_klein(pathlib.Path(sys.argv[1]))"
)


def test_editors_in_an_environment_of_their_own(tmp_path: Path) -> None:
    pipeline = tmp_path / "pipeline"
    paths = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([str(PYTHON), "-c", BUILD, str(pipeline)], check=True, cwd=ROOT, env=paths, capture_output=True)
    calls = {"text_encoder_out_layers": [1], "max_sequence_length": 32}
    made = config(
        {},
        budget=2,
        edit={
            "image_editor": "flux2-klein",
            "candidates": 1,
            "diffusion": {"model": str(pipeline), "dtype": "fp32", "steps": 1, "arguments": calls},
            "pool": {"python": str(PYTHON), "rows_per_block": 2},
        },
        selection={"audit": False, "min_gain": -2.0, "min_scaffold": -1.0},
    )
    run = prepare(tmp_path / "run", made)
    audit(run, made, "verdicts", "failures")
    edit(run, made, "edits", "verdicts", "failures", "embeddings", SPEC)
    rows = [row for row in run.read("edits").to_pylist() if row["direction"] == "t2i"]
    assert len(rows) == 2 and any(row["status"] == tables.OK and row["uri"] for row in rows), rows
