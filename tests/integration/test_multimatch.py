"""A benchmark built whole: on the world, whose truth is known; by a model behind an endpoint; and on emoji."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from repair_ray import tables
from repair_ray.config import Config, parse_config
from repair_ray.data.text import text_key
from repair_ray.engines.encoder import build_model, save_weights
from repair_ray.engines.retriever import RetrieverSpec
from repair_ray.evaluation.benchmark_files import read_benchmark
from repair_ray.multimatch.build import build
from repair_ray.run import Run, RunError
from repair_ray.stages.vectors import read_embeddings
from repair_ray.world.render import scene_of
from repair_ray.world.truth import describes
from tests.engines.fault_server import FaultServer, Handler, completion

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("local_ray")]

SHARED = Path(os.environ.get("REPAIR_RAY_SHARED_DATA", Path(__file__).parents[3] / "shared/data"))


@pytest.fixture(scope="module", autouse=True)
def key() -> Iterator[None]:
    """Set before Ray starts: its workers have the environment that it was started in."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REPAIR_RAY_TEST_KEY", "sk-test")
        yield


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two retrievers of random weights."""
    folder = tmp_path_factory.mktemp("weights")
    for seed, name in enumerate(("one", "two")):
        save_weights(build_model(RetrieverSpec("tiny-64"), seed=seed), folder / f"{name}.safetensors")
    return folder


def config(output: Path, weights: Path, *, data: dict[str, Any] | None = None, **changes: Any) -> Config:
    experts = [
        {"name": name, "model": "tiny-64", "pretrained": str(weights / f"{name}.safetensors"), "teacher": name == "two"}
        for name in ("one", "two")
    ]
    multimatch = {
        "queries": {"n": 12, "min_matches": 2, "max_matches": 20, "held_out": 0.25},
        "gallery": {"size": 40, "clusters": 5},
        "experts": experts,
        "candidates": {"top": 10, "outside": 10},
        "overlap": {"cosine": 0.9995},
        **changes.pop("multimatch", {}),
    }
    world = {"world": {"train": 30, "validation": 2, "test": 60}}
    return parse_config(
        {"name": "bench", "output": str(output), "data": data or world, "multimatch": multimatch, **changes}
    )


@pytest.fixture(scope="module")
def world(local_ray: None, weights: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A finished benchmark on the world. Tests only read it."""
    made = config(tmp_path_factory.mktemp("world"), weights)
    built = build(made)
    assert built.folder is not None and built.waiting is None
    return Run(made.run_dir)


def manifests(run: Run) -> dict[str, str]:
    return {path.relative_to(run.folder).as_posix(): path.read_text() for path in run.folder.rglob("manifest.json")}


def true_pairs(run: Run) -> set[tuple[str, str]]:
    """All that is true of queries and gallery, from the scenes in the pictures."""
    images = {row["image_id"]: row for row in run.read("data/images").to_pylist()}
    gallery = [row["image_id"] for row in run.read("multimatch/gallery").to_pylist() if row["status"] == tables.OK]
    scenes = {}
    for image in gallery:
        row = images[image]
        with (run.folder / row["uri"]).open("rb") as file:
            file.seek(row["offset"])
            scenes[image] = scene_of(file.read(row["length"]))
    queries = run.read("multimatch/queries").to_pylist()
    return {
        (row["query_id"], image) for row in queries for image, scene in scenes.items() if describes(row["text"], scene)
    }


def test_labels_are_true_and_the_interval_holds_the_true_recall(world: Run) -> None:
    stats = json.loads((world.folder / "stats.json").read_text())
    true = true_pairs(world)
    assert true and stats["truth"]["matches"] == len(true)
    rows = world.read("multimatch/matches").to_pylist()
    said = {(row["query_id"], row["image_id"]) for row in rows if row["label"] == "yes"}
    seen = {(row["query_id"], row["image_id"]) for row in rows}
    # The first caption of a scene says all of it, so that the rules can tell.
    assert said == true & seen
    inside = {(row["query_id"], row["image_id"]) for row in rows if row["proposed"]}
    found = stats["completeness"]["all"]
    assert found["inside_matches"] == len(true & inside)
    assert found["outside_pairs"] == 12 * 40 - len(inside) and found["sampled"] == 120
    low, high = found["missed_interval"]
    assert low <= len(true - inside) <= high
    recall = 100 * len(true & inside) / len(true)
    assert stats["truth"]["union_recall"]["percent"] == pytest.approx(recall, abs=1e-3)
    assert found["interval"][0] <= recall <= found["interval"][1]
    assert "heuristic backend" in stats["notes"][0]


def test_files_hold_what_was_labelled(world: Run) -> None:
    benchmark = read_benchmark(world.path("multimatch/benchmark"))
    assert (len(benchmark.queries), len(benchmark.gallery)) == (12, 40)
    assert sum(query.held_out for query in benchmark.queries) == 3
    assert len({text_key(query.text) for query in benchmark.queries}) == 12
    listed = {(query, image) for query, images in benchmark.matches.items() for image in images}
    assert listed <= true_pairs(world)


def test_held_out_queries_have_no_candidate_of_the_teacher(world: Run) -> None:
    held_out = {row["query_id"] for row in world.read("multimatch/queries").to_pylist() if row["held_out"]}
    experts: dict[bool, set[str]] = {True: set(), False: set()}
    for row in world.read("multimatch/pairs").to_pylist():
        experts[row["query_id"] in held_out] |= set(row["experts"])
    assert experts == {True: {"one"}, False: {"one", "two"}}


def test_the_gallery_has_of_every_cluster(world: Run) -> None:
    rows = world.read("multimatch/gallery").to_pylist()
    taken = [row["cluster"] for row in rows if row["status"] == tables.OK]
    assert len(rows) == 60 and len(taken) == 40
    sizes = [sum(row["cluster"] == number for row in rows) for number in range(5)]
    assert [taken.count(number) for number in range(5)] != sizes
    assert all(taken.count(number) >= min(8, size) for number, size in enumerate(sizes))


def test_overlap_by_embedding_is_that_of_a_matrix_product(world: Run) -> None:
    trained = read_embeddings(world, "multimatch/trained_features", tables.IMAGE, "train")
    gallery = read_embeddings(world, "multimatch/experts/one", tables.IMAGE, "test")
    cosines = trained.features @ gallery.features.T
    near = {item for item, row in zip(trained.ids, cosines, strict=True) if row.max() >= 0.9995}
    rows = world.read("multimatch/overlap").to_pylist()
    assert {row["item_id"] for row in rows if row["way"] == "embedding"} == near
    facts = (world.manifest("multimatch/overlap") or {})["overlap"]
    assert facts["nearest_cosine"]["0.5"] == pytest.approx(np.median(cosines.max(axis=1)), abs=1e-3)
    with (world.path("multimatch/overlap") / "kept.csv").open(newline="") as file:
        kept = {row["image_id"] for row in csv.DictReader(file)}
    assert kept == set(trained.ids) - {row["item_id"] for row in rows}


def test_the_same_again_does_nothing_and_other_settings_are_refused(world: Run, weights: Path, tmp_path: Path) -> None:
    shutil.copytree(world.folder, tmp_path / "bench")
    run, before = Run(tmp_path / "bench"), manifests(world)
    build(config(tmp_path, weights))
    assert manifests(run) == before
    for changes, message in (
        (
            {"candidates": {"top": 11, "outside": 10}},
            r"multimatch\.candidates\.top was 10, is now 11.*--redo multimatch/p",
        ),
        ({"verify": {"decide": "unanimous"}}, r"multimatch\.verify\.decide was 'majority', is now 'unanimous'"),
        ({"gallery": {"size": 30, "clusters": 5}}, r"multimatch\.gallery\.size was 40, is now 30"),
    ):
        with pytest.raises(RunError, match=message):
            build(config(tmp_path, weights, multimatch=changes))
    assert manifests(run) == before
    # A kill before the last line of a product: it is made again, the same, and nothing else is.
    (run.path("multimatch/pairs") / "manifest.json").unlink()
    pairs = pq.read_table(run.path("multimatch/pairs")).to_pylist()
    build(config(tmp_path, weights))
    after = manifests(run)
    assert {name for name in after if after[name] != before[name]} == {"multimatch/pairs/manifest.json"}
    assert run.read("multimatch/pairs").to_pylist() == pairs


def asked(body: dict[str, Any]) -> str:
    """The text of a question."""
    content = body["messages"][-1]["content"]
    return content if isinstance(content, str) else " ".join(part.get("text", "") for part in content)


def writes(handler: Handler, body: dict[str, Any], number: int) -> None:
    """A query for each combination; the second writes prose, the third what the first wrote."""
    shared = json.loads(re.findall(r"What the images share: (\".*\")", asked(body))[0])
    examples = json.loads(re.findall(r"A caption of each of some of them: (\[.*\])", asked(body))[0])
    assert examples and len(examples) <= 8
    text = {2: "twins", 3: "twins"}.get(number, f"show me {shared}")
    answer = "I cannot." if number in (1, 4) else json.dumps({"reason": "r", "query": text})
    handler.send(200, completion(answer))


def verifies(handler: Handler, body: dict[str, Any], number: int) -> None:
    """Yes to every third question, unsure of every seventh."""
    word = "yes" if number % 3 == 0 else "unsure" if number % 7 == 0 else "no"
    handler.send(200, completion(json.dumps({"reason": "r", "matches": word, "confidence": 0.8})))


@pytest.fixture
def server() -> Iterator[FaultServer]:
    made = FaultServer("")
    yield made
    made.shutdown()
    made.server_close()


def test_a_model_writes_and_verifies(server: FaultServer, weights: Path, tmp_path: Path) -> None:
    server.script = {"What the images share": writes, "Caption to verify": verifies}
    language = {
        "backend": "openai",
        "model": "m",
        # One after another, so that the server's count is the order of the questions.
        "endpoint": {"url": server.url, "key_variable": "REPAIR_RAY_TEST_KEY", "retries": 0, "at_once": 1},
        "pool": {"num_cpus": 0.5},
    }
    queries = {"n": 8, "min_matches": 1, "max_matches": 20}
    changes = {"queries": queries, "gallery": {}, "candidates": {"top": 3, "outside": 2}, "overlap": {"split": None}}
    world = {"world": {"train": 2, "validation": 2, "test": 20}}
    made = config(tmp_path, weights, data=world, language=language, multimatch=changes)
    built = build(made)
    run = Run(made.run_dir)
    rows = run.read("multimatch/queries").to_pylist()
    # Ten combinations for eight queries. Prose was asked for once more; one text was written twice, one is not needed.
    reasons = sorted(row["reason"] for row in rows if row["status"] == tables.REJECTED)
    assert reasons == ["another query has the same text", "beyond multimatch.queries.n"]
    good = [row["text"] for row in rows if row["status"] == tables.OK]
    assert len(good) == len(set(good)) == 8 == len(rows) - 2
    assert "twins" in good and sum(text.startswith("show me ") for text in good) == 7
    labels = {row["pair_id"]: row for row in run.read("multimatch/labels/language").to_pylist()}
    pairs = run.read("multimatch/pairs").to_pylist()
    assert labels.keys() == {row["pair_id"] for row in pairs}
    assert {row["label"] for row in labels.values()} == {"yes", "no", "unsure"}
    assert {row["verifier"] for row in labels.values()} == {"m"}
    assert built.stats is not None and not any("heuristic" in note for note in built.stats["notes"])
    assert built.stats["undecided"]["unsure"] == sum(row["label"] == "unsure" for row in labels.values())
    questions = server.requests
    build(made, redo=["multimatch/labels/language"])
    assert server.requests == questions, "what was answered is not asked again"


def test_an_endpoint_that_answers_nothing_stops_the_build(server: FaultServer, weights: Path, tmp_path: Path) -> None:
    server.default = "no JSON"
    language = {
        "backend": "openai",
        "model": "m",
        "endpoint": {"url": server.url, "key_variable": "REPAIR_RAY_TEST_KEY", "retries": 0},
        "pool": {"num_cpus": 0.5},
    }
    world = {"world": {"train": 2, "validation": 2, "test": 20}}
    changes = {"queries": {"n": 4, "min_matches": 1, "max_matches": 20}, "gallery": {}, "overlap": {"split": None}}
    with pytest.raises(RunError, match=r"multimatch/queries_answers: 5 of 5 rows failed.*prose instead of JSON"):
        build(config(tmp_path, weights, data=world, language=language, multimatch=changes))


@pytest.mark.shared_data
@pytest.mark.whole_runs
def test_on_emoji_the_datas_own_captions_are_the_truth(weights: Path, tmp_path: Path) -> None:
    folder = SHARED / "emoji"
    if not folder.is_dir():
        pytest.skip(f"{folder} is absent (set REPAIR_RAY_SHARED_DATA)")
    data = {
        "train": str(folder / "validation.parquet"),
        "test": str(folder / "test.parquet"),
        "caption_column": "captions_multi",
        "split_column": "",  # so that a small split can stand for what is trained on
    }
    changes = {
        "queries": {"n": 40, "source": "captions", "min_matches": 2, "max_matches": 20, "held_out": 0.25},
        "gallery": {},
        "candidates": {"top": 40, "outside": 50},
        "verify": {"by": ["groups"]},
        "overlap": {"cosine": None},
    }
    made = config(tmp_path, weights, data=data, multimatch=changes)
    built = build(made)
    assert built.stats is not None
    run = Run(made.run_dir)
    # The truth from the file itself. Pictures with equal pixels share their captions.
    shared = pq.read_table(folder / "test.parquet", columns=["image_id", "captions_multi"]).to_pylist()
    keys = {row["image_id"]: {text_key(text) for text in row["captions_multi"]} for row in shared}
    images = [row for row in run.read("data/images").to_pylist() if row["split"] == "test"]
    of_group: dict[str, set[str]] = {}
    for row in images:
        of_group.setdefault(row["group_id"], set()).update(keys[row["name"]])
    queries = run.read("multimatch/queries").to_pylist()
    true = {
        (query["query_id"], row["image_id"])
        for query in queries
        for row in images
        if query["text_key"] in of_group[row["group_id"]]
    }
    rows = run.read("multimatch/matches").to_pylist()
    seen = {(row["query_id"], row["image_id"]) for row in rows}
    assert {(row["query_id"], row["image_id"]) for row in rows if row["label"] == "yes"} == true & seen
    inside = {(row["query_id"], row["image_id"]) for row in rows if row["proposed"]}
    low, high = built.stats["completeness"]["all"]["missed_interval"]
    assert low <= len(true - inside) <= high
    assert built.stats["matches"]["max"] <= 20 and built.stats["queries"]["n"] == 40
