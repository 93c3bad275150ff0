"""Runs of the command line that claims are measured on: made once, resumed where they stopped, read as summaries."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from repair_ray.engines.retriever import RetrieverSpec

CONFIGS = Path(__file__).parent / "configs"


def finished(config: Path, name: str, output: Path, *settings: str) -> dict[str, Any]:
    """The summary of the run `name`, which is made, or gone on with, where it is not finished.

    Raises:
        subprocess.CalledProcessError: the run stopped; it has said why.
    """
    command = [sys.executable, "-m", "repair_ray", "run", str(config), f"name={name}", f"output={output}", *settings]
    subprocess.run(command, check=True)
    return dict(json.loads((output / name / "summary.json").read_text(encoding="utf-8")))


def r1(metrics: dict[str, Any]) -> dict[str, float]:
    """R@1 by direction, and their mean."""
    i2t, t2i = metrics["i2t"]["r@1"], metrics["t2i"]["r@1"]
    return {"i2t": i2t, "t2i": t2i, "mean": (i2t + t2i) / 2}


def by_variant(summary: dict[str, Any], first: str) -> dict[str, dict[str, Any]]:
    """The metrics of every retriever of a run: `base`, the round's, which goes by `first`, and the controls'."""
    found = {"base": summary["base"]["metrics"], first: summary["rounds"][0]["metrics"]}
    return found | {name: control["metrics"] for name, control in summary["controls"].items()}


def weights_of(run: Path, variant: str, first: str) -> Path:
    """The weights of a retriever of a run, by the names of `by_variant`."""
    place = {"base": "base", first: "round-1"}.get(variant, f"controls/{variant}")
    return run / place / "training" / "model.safetensors"


def spec_of(run: Path, variant: str, first: str) -> RetrieverSpec:
    """A retriever of a run, by the names of `by_variant`."""
    model = json.loads((run / "config.json").read_text(encoding="utf-8"))["retriever"]["model"]
    return RetrieverSpec(model, str(weights_of(run, variant, first)))


def columns(found: list[dict[str, dict[str, float]]], variant: str) -> dict[str, list[float]]:
    """A variant's figures of all seeds, by measure."""
    return {measure: [seed[variant][measure] for seed in found] for measure in found[0][variant]}
