"""The same question to the base and to the repaired retriever of a finished run."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from rich.console import Console
from typer.testing import CliRunner

from repair_ray.cli import app
from repair_ray.data.records import DataError
from repair_ray.data.store import ImageStore
from repair_ray.engines.encoder import Encoder
from repair_ray.measuring.retrievers import retrievers_of
from repair_ray.measuring.search import search
from repair_ray.report.search import search_table
from repair_ray.run import Run, RunError


@pytest.fixture
def run(made: Path) -> Run:
    return Run(made / "run")


def _test_rows(run: Run, product: str) -> list[dict[str, Any]]:
    return [row for row in run.read(product).to_pylist() if row["split"] == "test"]


def test_a_caption_finds_images_as_a_plain_product_of_features_does(run: Run) -> None:
    caption = _test_rows(run, "data/captions")[0]
    facts = search(str(run.folder), caption["text"], k=4)
    assert (facts["direction"], facts["n"], facts["query"]) == ("t2i", 8, {"text": caption["text"]})
    assert [retriever["name"] for retriever in facts["retrievers"]] == ["base", "repaired"]
    owners = {row["image_id"] for row in _test_rows(run, "data/captions") if row["text"] == caption["text"]}
    for retriever in facts["retrievers"]:
        encoder = Encoder(retrievers_of(str(run.folder), retriever["name"])[0].spec)
        images, store = _test_rows(run, "data/images"), ImageStore(str(run.folder))
        features = encoder.encode_images([store.rgb(row["uri"], row["offset"], row["length"]) for row in images])
        scores = features @ encoder.encode_texts([caption["text"]])[0]
        best = np.argsort(-scores)[:4]
        assert [hit["image_id"] for hit in retriever["hits"]] == [images[place]["image_id"] for place in best]
        assert [hit["score"] for hit in retriever["hits"]] == pytest.approx(scores[best], abs=2e-4)
        assert [hit["right"] for hit in retriever["hits"]] == [hit["image_id"] in owners for hit in retriever["hits"]]
    before, after = (retriever["hits"] for retriever in facts["retrievers"])
    assert before != after


def test_a_picture_finds_captions_and_its_own_are_right(made: Path, tmp_path: Path) -> None:
    shutil.copytree(made / "run", tmp_path / "run")
    row = _test_rows(Run(tmp_path / "run"), "data/images")[0]
    own = [c["text"] for c in _test_rows(Run(tmp_path / "run"), "data/captions") if c["image_id"] == row["image_id"]]
    # Under another name and in another encoding, with the same pixels.
    ImageStore("/").rgb(row["uri"]).save(tmp_path / "asked.png")
    facts = search(str(tmp_path / "run"), str(tmp_path / "asked.png"), k=50)
    assert (facts["direction"], facts["n"]) == ("i2t", len(_test_rows(Run(made / "run"), "data/captions")))
    for retriever in facts["retrievers"]:
        assert sorted(hit["text"] for hit in retriever["hits"] if hit["right"]) == sorted(own)
    console = Console(record=True, width=120)
    console.print(search_table(facts))
    assert console.export_text().count("✓") == 2 * len(own) + 1
    command = ["search", str(tmp_path / "run"), str(tmp_path / "asked.png"), "--k", "3"]
    ended = CliRunner().invoke(app, command)
    assert ended.exit_code == 0, ended.output
    page = (tmp_path / "run" / "search.html").read_text()
    assert page.count("data:image/png") == 1 + 2 * 3


def test_what_cannot_be_searched(run: Run, tmp_path: Path) -> None:
    folder = str(run.folder)
    (tmp_path / "page.jpg").write_text("<html></html>")
    with pytest.raises(DataError, match="html"):
        search(folder, str(tmp_path / "page.jpg"))
    with pytest.raises(DataError, match="no picture at"):
        search(folder, str(tmp_path / "missing.jpg"))
    with pytest.raises(RunError, match="no run at"):
        search(str(tmp_path), "a red circle")
    with pytest.raises(RunError, match="'train'"):
        search(folder, "a red circle", split="train")
    Image.new("RGB", (8, 8)).save(tmp_path / "named without ending", "PNG")
    assert search(folder, str(tmp_path / "named without ending"), k=1)["direction"] == "i2t"
    only_base = search(folder, "a red circle", split="validation", k=1)
    assert [retriever["name"] for retriever in only_base["retrievers"]] == ["base"]
