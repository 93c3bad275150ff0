"""`evaluate multimatch` on the folder of a benchmark, against figures that are computed here otherwise."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from repair_ray.cli import app
from repair_ray.engines.encoder import Encoder
from repair_ray.engines.retriever import RetrieverSpec
from repair_ray.evaluation.benchmark_files import Benchmark, Picture, Query, write_benchmark
from tests.measuring.conftest import NAMES, measure

TEXTS = ["a red square", "something green", "black or white", "never matched"]
MATCHES: dict[str, tuple[str, ...]] = {"q0": ("p0", "p3", "p5"), "q1": ("p1",), "q2": ("p2", "p4"), "q3": ()}
IGNORED: dict[str, tuple[str, ...]] = {"q0": ("p1", "p6"), "q1": (), "q2": ("p7",), "q3": ("p0",)}
K = 3


def benchmark(folder: Path, **changes: Any) -> Path:
    (folder / "bench").mkdir()
    fields: dict[str, Any] = {
        "queries": [Query(f"q{n}", text, held_out=n == 1) for n, text in enumerate(TEXTS)],
        "gallery": [Picture(f"p{n}", name, str(folder / name)) for n, name in enumerate(NAMES[:8])],
        "matches": MATCHES,
        "ignored": IGNORED,
        "facts": {"name": "made", "completeness": {"all": {"interval": [61.0, 88.5]}}},
    }
    write_benchmark(folder / "bench", Benchmark(**{**fields, **changes}))
    return folder / "bench"


def precisions(folder: Path, place: str) -> list[float]:
    """AP@3 of each query with a match, from a plain sort of the pictures that are not ignored."""
    encoder = Encoder(RetrieverSpec("tiny-64", str(folder / "run" / place / "training" / "model.safetensors")))
    gallery = encoder.encode_images([Image.open(folder / name).convert("RGB") for name in NAMES[:8]])
    found = []
    for query, scores in zip(MATCHES, encoder.encode_texts(TEXTS) @ gallery.T, strict=True):
        order = [f"p{n}" for n in np.argsort(-scores) if f"p{n}" not in IGNORED[query]]
        hits = [picture in MATCHES[query] for picture in order[:K]]
        if MATCHES[query]:
            total = sum(sum(hits[: r + 1]) / (r + 1) for r, hit in enumerate(hits) if hit)
            found.append(100 * total / min(K, len(MATCHES[query])))
    return found


def test_a_run_on_a_benchmark(workplace: Path) -> None:
    folder = benchmark(workplace)
    said, facts = measure("multimatch", "run", str(folder), "--k", str(K))
    expected = {label: precisions(workplace, place) for label, place in (("base", "base"), ("repaired", "round-1"))}
    for label, values in expected.items():
        metrics = facts["retrievers"][label]["metrics"]["all"]
        assert metrics["map@3"] == pytest.approx(np.mean(values), abs=2e-3)
        low, high = metrics["map@3_ci"]
        assert min(values) - 1e-3 <= low <= metrics["map@3"] <= high <= max(values) + 1e-3
        assert (metrics["n"], metrics["skipped"]) == (3, 1)
        assert facts["retrievers"][label]["metrics"]["held_out"]["map@3"] == pytest.approx(values[1], abs=2e-3)
    gain = np.mean(np.array(expected["repaired"]) - np.array(expected["base"]))
    assert facts["difference"]["map@3"] == pytest.approx(gain, abs=2e-3)
    assert "1 queries without a match are left out" in said and "min(K, positives)" in said
    assert "61.0 to 88.5 %" in said and "held out from teachers" in said
    assert facts["protocol"]["ignored"] == 4 and "seeds" not in facts


def test_several_seeds(workplace: Path) -> None:
    folder = benchmark(workplace)
    shutil.copytree("run", "other")
    # The other seed: base and repaired change places.
    shutil.copy("run/base/training/model.safetensors", "other/round-1/training/model.safetensors")
    shutil.copy("run/round-1/training/model.safetensors", "other/base/training/model.safetensors")
    said, facts = measure("multimatch", "run", str(folder), "--k", str(K), "--with", "other")
    base, repaired = (float(np.mean(precisions(workplace, place))) for place in ("base", "round-1"))
    for label, values in (("base", [base, repaired]), ("repaired", [repaired, base])):
        spread = facts["seeds"][label]
        assert spread["values"] == pytest.approx(values, abs=2e-3)
        assert spread["mean"] == pytest.approx((base + repaired) / 2, abs=2e-3)
        assert spread["deviation"] == pytest.approx(abs(base - repaired) / 2**0.5, abs=3e-3)
    assert "over seeds" in said


def test_pictures_that_are_gone_are_counted(workplace: Path) -> None:
    folder = benchmark(workplace)
    (workplace / NAMES[3]).unlink()
    said, facts = measure("multimatch", "run", str(folder), "--which", "base")
    assert facts["protocol"]["pictures"] == 7 and facts["protocol"]["unused"]["reasons"] == {"missing_file": 1}
    assert facts["retrievers"]["base"]["metrics"]["all"]["positives"]["max"] == 2
    assert "missing file" in said and "difference" not in facts


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--split", "test"], "says itself what is right: take the options out"),
        (["--with", "none"], "as a model it needs weights"),
    ],
)
def test_what_does_not_go_with_it(workplace: Path, arguments: list[str], message: str) -> None:
    ended = CliRunner().invoke(app, ["evaluate", "multimatch", "run", str(benchmark(workplace)), *arguments])
    assert ended.exit_code == 2 and message in " ".join(ended.output.split())


def test_seeds_are_of_a_benchmark_and_of_one_method(workplace: Path) -> None:
    ended = CliRunner().invoke(app, ["evaluate", "multimatch", "run", "--with", "run"])
    assert ended.exit_code == 2 and "--with is for the folder of a benchmark" in " ".join(ended.output.split())
    folder = str(benchmark(workplace, matches={f"q{n}": () for n in range(4)}))
    ended = CliRunner().invoke(app, ["evaluate", "multimatch", "run", folder])
    assert ended.exit_code == 2 and "no query has a positive" in " ".join(ended.output.split())
