"""The same question to the base and to the repaired retriever of a finished run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

from repair_ray.config import parse_config
from repair_ray.data.records import DataError
from repair_ray.data.store import ImageStore
from repair_ray.engines.encoder import Encoder
from repair_ray.measuring.retrievers import retrievers_of
from repair_ray.measuring.search import search
from repair_ray.report.search import search_table, write_search
from repair_ray.run import Run, RunError, read_json

pytestmark = pytest.mark.integration


@pytest.fixture
def run(small_run: Any) -> Run:
    return Run(small_run.folder)


def _test_rows(run: Run, product: str) -> list[dict[str, Any]]:
    return [row for row in run.read(product).to_pylist() if row["split"] == "test"]


def test_a_caption_finds_images_as_a_plain_product_of_features_does(run: Run) -> None:
    caption = _test_rows(run, "data/captions")[0]
    facts = search(str(run.folder), caption["text"], k=4)
    assert (facts["direction"], facts["n"], facts["query"]) == ("t2i", 40, {"text": caption["text"]})
    assert [retriever["name"] for retriever in facts["retrievers"]] == ["base", "repaired"]
    for retriever, training in zip(facts["retrievers"], ("base/training", "round-1/training"), strict=True):
        spec = retrievers_of(str(run.folder), retriever["name"])[0].spec
        assert spec.weights == str(run.path(training) / "model.safetensors")
        encoder, store = Encoder(spec), ImageStore(str(run.folder))
        images = _test_rows(run, "data/images")
        features = encoder.encode_images([store.rgb(row["uri"], row["offset"], row["length"]) for row in images])
        scores = features @ encoder.encode_texts([caption["text"]])[0]
        best = np.argsort(-scores)[:4]
        assert [hit["image_id"] for hit in retriever["hits"]] == [images[place]["image_id"] for place in best]
        assert [hit["score"] for hit in retriever["hits"]] == pytest.approx(scores[best], abs=2e-4)
        owners = {row["image_id"] for row in images if row["group_id"] == caption["group_id"]}
        assert [hit["right"] for hit in retriever["hits"]] == [hit["image_id"] in owners for hit in retriever["hits"]]


def test_a_picture_finds_captions_and_its_own_are_right(run: Run, tmp_path: Path) -> None:
    row = _test_rows(run, "data/images")[0]
    ImageStore(str(run.folder)).rgb(row["uri"], row["offset"], row["length"]).save(tmp_path / "asked.png")
    facts = search(str(run.folder), str(tmp_path / "asked.png"), k=200)
    assert (facts["direction"], facts["n"]) == ("i2t", 200)
    for retriever in facts["retrievers"]:
        right = [hit for hit in retriever["hits"] if hit["right"]]
        assert len(right) == 5 and {hit["image_id"] for hit in right} == {row["image_id"]}
    data = parse_config(read_json(run.folder / "config.json") or {}).data
    page = write_search(str(run.folder), facts, data, tmp_path / "page.html").read_text()
    assert page.count("data:image/png") == 1 + 2 * 200
    console = Console(record=True, width=120)
    console.print(search_table(facts))
    assert right[0]["text"].split()[0] in console.export_text()


def test_what_cannot_be_searched(run: Run, tmp_path: Path) -> None:
    (tmp_path / "page.jpg").write_text("<html></html>")
    with pytest.raises(DataError, match="html"):
        search(str(run.folder), str(tmp_path / "page.jpg"))
    with pytest.raises(DataError, match="no picture at"):
        search(str(run.folder), str(tmp_path / "missing.jpg"))
    with pytest.raises(RunError, match="no run at"):
        search(str(tmp_path), "a red circle")
    with pytest.raises(RunError, match="'validation'"):
        search(str(run.folder), "a red circle", split="validation")
    Image.new("RGB", (8, 8)).save(tmp_path / "named without ending", "PNG")
    assert search(str(run.folder), str(tmp_path / "named without ending"), k=1)["direction"] == "i2t"
    only_base = search(str(run.folder), "a red circle", split="train", k=1)
    assert [retriever["name"] for retriever in only_base["retrievers"]] == ["base"]
