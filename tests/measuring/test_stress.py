"""`evaluate stress` on the small run: oracles, stress sets that are kept, circular figures, and refusals."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from repair_ray import tables
from repair_ray.engines.encoder import Encoder
from repair_ray.engines.retriever import RetrieverSpec, weights_identity
from repair_ray.run import Recipe, Run
from tests.measuring.conftest import measure
from tests.test_cli import refuse

COLOURS = ["red", "green", "blue", "black", "white", "pink"]


@pytest.fixture
def pairs(workplace: Path) -> Path:
    """Colours that are taken for the next."""
    lines = [f"{one},{other}" for one, other in zip(COLOURS, [*COLOURS[1:], "violet"], strict=True)]
    (workplace / "pairs.csv").write_text("\n".join(["word,other", *lines]))
    return workplace / "pairs.csv"


def test_a_list_is_the_oracle_and_the_set_is_kept(workplace: Path, pairs: Path) -> None:
    shown, found = measure("stress", "run", "--oracle", "pairs.csv", "--set", "set.jsonl")
    protocol = found["protocol"]
    assert protocol["oracle"]["kind"] == "list" and protocol["circular"] is None
    assert "Oracle: pairs.csv" in shown and "a tie is wrong" in shown and "WARNING" not in shown
    lines = [json.loads(line) for line in (workplace / "set.jsonl").read_text().splitlines()]
    assert len(lines) == 1 + protocol["questions"] and protocol["split"] == "test"
    question = next(line for line in lines if line.get("caption") == "a green square number 1")
    assert set(question["negatives"]) == {"a red square number 1", "a blue square number 1"}
    # One question by hand, straight from the encoder.
    again, same = measure("stress", "run", "--set", "set.jsonl", "--which", "base")
    assert same["retrievers"]["base"]["metrics"] == found["retrievers"]["base"]["metrics"]
    assert same["protocol"]["stress_set"] == protocol["stress_set"] and "Oracle: pairs.csv" in again
    encoder = Encoder(RetrieverSpec("tiny-64", str(workplace / "run/base/training/model.safetensors")))
    files = {row["image_id"]: row["uri"] for row in Run(workplace / "run").read("data/images").to_pylist()}
    hits = []
    for line in lines[1:]:
        with Image.open(files[line["item"]]) as picture:
            image = encoder.encode_images([picture.convert("RGB")])[0]
        scores = encoder.encode_texts([line["caption"], *line["negatives"]]) @ image
        hits.append(scores[0] > scores[1:].max() + 1e-6)
    assert found["retrievers"]["base"]["metrics"]["r@1"] == pytest.approx(100 * float(np.mean(hits)), abs=1e-3)
    assert found["retrievers"]["base"]["metrics"]["n"] == len(hits)


def test_a_retriever_as_the_oracle_of_itself_is_circular(workplace: Path) -> None:
    low = ("--negatives", "alpha=-1", "--negatives", "beta=-1")
    shown, found = measure("stress", "run", "--which", "base", "--oracle", "run", *low)
    assert found["protocol"]["circular"] == "circular: the oracle is the retriever base itself"
    assert "WARNING, circular: the oracle is the retriever base itself" in shown
    assert found["protocol"]["oracle"]["model"] == "tiny-64" and found["protocol"]["settings"]["alpha"] == -1
    weights = "run/round-1/training/model.safetensors"
    _, other = measure("stress", "run", "--which", "base", "--oracle", "tiny-64", "--oracle-pretrained", weights, *low)
    assert other["protocol"]["circular"] is None


def test_the_retriever_that_mined_the_negatives_is_no_oracle(workplace: Path) -> None:
    run = Run(workplace / "run")
    weights = weights_identity(str(run.path("base/training") / "model.safetensors"))
    oracle = {"kind": "visual", "model": "tiny-64", "weights": weights, "precision": "fp32"}
    run.ready("round-1/confusable", Recipe({}))
    empty = tables.to_table([], tables.CONFUSABLE.schema)
    run.commit("round-1/confusable", Recipe({}), tables.CONFUSABLE, empty, 0.0, oracle=oracle)
    low = ("--negatives", "alpha=-1", "--negatives", "beta=-1")
    _, found = measure("stress", "run", "--which", "repaired", "--oracle", "run", *low)
    assert found["protocol"]["circular"] == "circular: the oracle is what made the negatives of round-1/confusable"


def test_what_is_refused(workplace: Path, pairs: Path) -> None:
    assert "--oracle" in refuse("evaluate", "stress", "run")
    assert "one retriever" in refuse("evaluate", "stress", "run", "--oracle", "run", "--oracle-which", "both")
    assert "negatives.alpha=0.99" in refuse("evaluate", "stress", "run", "--oracle", "run", "--negatives", "alpha=0.99")
    assert "--negatives: betta" in refuse(
        "evaluate", "stress", "run", "--oracle", "pairs.csv", "--negatives", "betta=1"
    )
    assert "cannot read gone.csv" in refuse("evaluate", "stress", "run", "--oracle", "gone.csv")
    measure("stress", "run", "--oracle", "pairs.csv", "--set", "set.jsonl", "--which", "base")
    line = refuse("evaluate", "stress", "run", "--oracle", "pairs.csv", "--set", "set.jsonl")
    assert "leave --oracle out" in line
    (workplace / "none.csv").write_text("word,other\nhorse,cow\n")
    assert "none of the 1 listed pairs" in refuse("evaluate", "stress", "run", "--oracle", "none.csv")
    line = refuse("evaluate", "stress", "run", "--split", "validation", "--set", "set.jsonl")
    assert "questions of set.jsonl is of a picture of" in line
