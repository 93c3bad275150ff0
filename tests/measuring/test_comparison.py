"""The ranks that an evaluation keeps, and `evaluate compare` on them."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from repair_ray import tables
from repair_ray.config import parse_config
from repair_ray.run import Run, read_json, write_json
from repair_ray.stages.evaluate import evaluate
from tests.measuring.conftest import NAMES, commit, measure
from tests.test_cli import refuse


def test_ranks_lie_beside_the_metrics(made: Path) -> None:
    run = Run(made / "run")
    manifest = run.manifest("base/metrics")
    rows = run.read("base/metrics").to_pylist()
    assert manifest is not None
    assert Counter(row["direction"] for row in rows) == {"i2t": 8, "t2i": 17}
    assert (manifest["table"], manifest["rows"]) == ("ranks", 25)
    for direction, metrics in manifest["metrics"].items():
        ranks = [row["rank"] for row in rows if row["direction"] == direction]
        assert metrics["mrr"] == pytest.approx(100 * sum(1 / rank for rank in ranks) / len(ranks), abs=1e-3)
    assert manifest["protocol"].items() >= {"model": "tiny-64", "precision": "fp32", "scores": "float32"}.items()


@pytest.mark.parametrize(("place", "embeddings"), [("base", "round-1/embeddings"), ("round-1", "round-1/evaluation")])
def test_the_items_ranked_highest_lie_beside_the_ranks(made: Path, place: str, embeddings: str) -> None:
    """Against plain arithmetic on the vectors: best first, with what is right, and the best of those that are right."""
    run = Run(made / "run")
    vectors = {row["item_id"]: row for row in run.read(embeddings).to_pylist() if row["split"] == "test"}
    images = {row["image_id"] for row in run.read("data/images").to_pylist()} & vectors.keys()
    captions = {row["caption_id"]: row for row in run.read("data/captions").to_pylist() if row["caption_id"] in vectors}
    for row in run.read(f"{place}/metrics").to_pylist():
        query = row["query_id"]
        if row["direction"] == "i2t":
            said = {caption["text_key"] for caption in captions.values() if caption["image_id"] == query}
            right = {name for name, caption in captions.items() if caption["text_key"] in said}
        else:
            key = captions[query]["text_key"]
            right = {caption["image_id"] for caption in captions.values() if caption["text_key"] == key}
        gallery = captions if row["direction"] == "i2t" else images
        scores = {item: float(np.dot(vectors[query]["vector"], vectors[item]["vector"])) for item in gallery}
        assert len(row["top"]) == 5
        assert [item["score"] for item in row["top"]] == pytest.approx(sorted(scores.values())[:-6:-1], abs=1e-5)
        for item in row["top"]:
            assert item["score"] == pytest.approx(scores[item["item_id"]], abs=1e-5)
            assert item["right"] == (item["item_id"] in right)
        assert row["ground_truth_id"] in right
        assert row["ground_truth_score"] == pytest.approx(max(scores[item] for item in right), abs=1e-5)
        if row["rank"] <= 5:
            assert [item["right"] for item in row["top"]].index(True) == row["rank"] - 1


def test_a_query_without_a_positive_keeps_its_row(workplace: Path) -> None:
    """The first picture's captions were not embedded: its own row says so, and it is no part of the metrics."""
    run, config = Run("run"), parse_config(read_json(Path("run/config.json")) or {})
    image = tables.row_id("test", NAMES[0])
    lost = {row["caption_id"] for row in run.read("data/captions").to_pylist() if row["image_id"] == image}
    vectors = [row for row in run.read("round-1/embeddings").to_pylist() if row["item_id"] not in lost]
    commit(run, "other/embeddings", tables.EMBEDDINGS, vectors)
    metrics = evaluate(run, config, "other/metrics", "other/embeddings")
    assert (metrics["metrics"]["i2t"]["n"], metrics["metrics"]["i2t"]["skipped"]) == (7, 1)
    assert metrics["protocol"]["captions_per_image"]["min"] == 0
    (row,) = [row for row in run.read("other/metrics").to_pylist() if row["status"] != tables.OK]
    assert (row["query_id"], row["rank"], row["reason"]) == (image, None, "no positive in the gallery")
    assert (row["ground_truth_id"], row["ground_truth_score"]) == (None, None)
    assert len(row["top"]) == 5 and not any(item["right"] for item in row["top"])


def test_metrics_of_an_earlier_version_stay_as_they_are(workplace: Path) -> None:
    """Their recipe is the same, so that a run goes on; their ranks come from the embeddings."""
    _, before = measure("compare", "run/base", "run")
    run, config = Run("run"), parse_config(read_json(Path("run/config.json")) or {})
    for place, embeddings in (("base", "round-1/embeddings"), ("round-1", "round-1/evaluation")):
        path = run.path(f"{place}/metrics")
        manifest = read_json(path / "manifest.json") or {}
        for name in ("table", "statuses", "reasons"):
            del manifest[name]
        manifest["protocol"] = {name: manifest["protocol"][name] for name in ("split", "images", "captions", "ties")}
        write_json(path / "manifest.json", manifest)
        (path / "part-00000.parquet").unlink()
        evaluate(run, config, f"{place}/metrics", embeddings)
        assert run.manifest(f"{place}/metrics") == manifest
    _, after = measure("compare", "run/base", "run")
    assert after["gains"] == before["gains"]


def test_compare_by_hand(workplace: Path) -> None:
    shown, found = measure("compare", "run/base", "run", "run/base/metrics/")
    assert (found["first"], list(found["gains"])) == ("run/base", ["run", "run/base/metrics"])
    same = found["gains"]["run/base/metrics"]["t2i"]["mrr"]
    assert same == {"difference": 0.0, "interval": [0.0, 0.0], "p": 1.0}
    gain, metrics = found["gains"]["run"], found["metrics"]
    for direction in ("i2t", "t2i"):
        expected = metrics["run"][direction]["r@1"] - metrics["run/base"][direction]["r@1"]
        assert gain[direction]["r@1"]["difference"] == pytest.approx(expected, abs=2e-3)
    assert "run minus run/base, in points" in shown and "8 images, 17 captions" in shown


def test_other_queries_are_refused_by_name(workplace: Path) -> None:
    shutil.copytree("run", "other")
    run = Run("other")
    table = run.read("round-1/metrics")
    lost = table["query_id"][0].as_py()
    manifest = read_json(run.path("round-1/metrics") / "manifest.json") or {}
    pq.write_table(table.slice(1), run.path("round-1/metrics") / "part-00000.parquet")
    line = refuse("evaluate", "compare", "run", "other")
    assert f"run and other have other i2t queries: 1 only in run, such as {lost}" in line
    manifest["protocol"]["split"] = "validation"
    write_json(run.path("round-1/metrics") / "manifest.json", manifest)
    assert "run was measured on split 'test', other on 'validation'" in refuse("evaluate", "compare", "run", "other")


@pytest.mark.parametrize(
    ("targets", "expected"),
    [
        (["run"], "name at least two runs"),
        (["run", "run"], "run is named twice"),
        (["run", "nowhere"], "there is no run at nowhere"),
        (["run", "run/controls/mined"], "controls/mined/metrics does not exist"),
    ],
)
def test_what_cannot_be_compared(
    made: Path, monkeypatch: pytest.MonkeyPatch, targets: list[str], expected: str
) -> None:
    monkeypatch.chdir(made)
    assert expected in refuse("evaluate", "compare", *targets)
