"""Each format read back as its own readers read it."""

from __future__ import annotations

import ast
import json
import tarfile
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest
import yaml

from repair_ray.data.images import load_rgb, pixel_hash
from repair_ray.data.readers import read
from repair_ray.data.records import InlineImage, Record
from repair_ray.export.dataset import FORMATS, export_pairs
from repair_ray.export.shards import SampleShards
from tests.export.made_run import encoded, make_run

JPEG, PNG = encoded("red", "jpeg"), encoded("green")


def export(folder: Path, format: str, **settings: Any) -> tuple[Path, dict[str, int]]:
    facts = export_pairs(*make_run(folder), folder / "out", format, **settings)
    assert json.loads((folder / "out" / "export.json").read_text()) == facts
    return folder / "out", facts["written"]


def members(shard: Path) -> dict[str, bytes]:
    with tarfile.open(shard) as tar:
        found = [(info, tar.extractfile(info)) for info in tar]
        assert {(info.mtime, info.uid, info.mode) for info, _ in found} == {(0, 0, 0o644)}
        return {info.name: file.read() for info, file in found if file is not None}


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_webdataset(tmp_path: Path) -> None:
    out, counts = export(tmp_path, "webdataset")
    found = members(out / "00000.tar")
    assert counts == {"pairs": 4, "shards": 1}
    assert json.loads((out / "sizes.json").read_text()) == {"00000.tar": 4}
    assert [name for name in found if name.startswith("f1.")] == [
        "f1.jpg",
        "f1.txt",
        "f1.neg.png",
        "f1.neg.txt",
        "f1.json",
    ]
    # Bytes are copied, not encoded again.
    assert (found["f1.jpg"], found["f1.neg.png"]) == (JPEG, PNG)
    assert (found["f1.txt"], found["f1.neg.txt"]) == (b"a red\tdot, not green", b"a green dot")
    assert json.loads(found["f2.json"])["synthetic_image"] is True
    assert "f3.neg.txt" not in found and found["f3.neg.png"] == encoded("blue")


def test_tripletclip_needs_all_four(tmp_path: Path) -> None:
    out, counts = export(tmp_path, "tripletclip")
    found = members(out / "shard-0.tar")
    assert counts == {"pairs": 3, "shards": 1, "without neg_caption, left out": 1}
    assert list(found)[:4] == ["f1.image", "f1.neg_image", "f1.caption", "f1.neg_caption"]
    # The wrong caption's own picture stands as neg_image.
    assert (found["f1.neg_image"], found["f1.neg_caption"]) == (PNG, b"a green dot")
    assert not [name for name in found if name.startswith("f3.")]


def test_shards_are_cut_by_size(tmp_path: Path) -> None:
    """Two members of a block of content each, with a header each: 2048 bytes a sample."""
    for limit, sizes in ((4096, [2, 1]), (4095, [1, 1, 1])):
        shards = SampleShards(tmp_path, f"{limit}-{{}}", limit)
        for key in ("a", "b", "c"):
            shards.add(key, [("txt", b"x"), ("json", b"y" * 512)])
        shards.close()
        assert list(shards.sizes.values()) == sizes
        assert len(members(tmp_path / f"{limit}-0.tar")) == 2 * sizes[0]


def test_negclip_rows_name_each_other(tmp_path: Path) -> None:
    out, counts = export(tmp_path, "negclip")
    # As NegCLIP's loader reads it.
    both = {"neg_caption": ast.literal_eval, "neg_image": ast.literal_eval}
    table = pd.read_csv(out / "negclip.tsv", sep="\t", converters=both)
    rows = [tuple(row) for row in table.itertuples(index=False)]
    assert rows == [
        ("images/A.jpg", "a red\tdot, not green", ["a green dot"], [1]),
        # Right of f4, wrong of f1.
        ("images/B.png", "a green dot", ["a red\tdot, not green", "a red dot"], [0, 4]),
        ("images/edit-f2.png", "a red dot", ["big green dot"], [3]),
        ("images/B.png", "big green dot", ["a red dot"], [2]),
        ("images/A.jpg", "a red dot", ["a green dot"], [1]),
    ]
    assert counts == {"pairs": 3, "rows": 5, "pictures": 3, "without neg_caption, left out": 1}
    assert (out / "images/A.jpg").read_bytes() == JPEG


def test_csv_has_the_edits_after_the_data(tmp_path: Path) -> None:
    out, counts = export(tmp_path, "csv")
    table = pd.read_csv(out / "pairs.tsv", sep="\t")
    assert list(table.columns) == ["filepath", "title"]
    assert table["title"].tolist()[:5] == ["a red dot", "one dot, in red", "a green dot", "big green dot", "A red dot."]
    assert [tuple(row) for row in table.itertuples(index=False)][5:] == [
        ("images/A.jpg", "a red\tdot, not green"),
        ("images/edit-f2.png", "a red dot"),
        ("images/edit-f3.png", "a red dot"),
        ("images/B.png", "a green dot"),
    ]
    assert counts == {"pairs": 4, "rows": 9, "pictures": 5}
    assert all((out / path).is_file() for path in table["filepath"])


def test_triplets(tmp_path: Path) -> None:
    out, _ = export(tmp_path, "sentence-transformers")
    caption, paired = lines(out / "i2t.jsonl")
    assert caption == {"anchor": "images/A.jpg", "positive": "a red\tdot, not green", "negative": "a green dot"}
    assert paired == {"anchor": "images/B.png", "positive": "a green dot", "negative": "a red dot"}
    picture = {"anchor": "a red dot", "positive": "images/edit-f2.png", "negative": "images/B.png"}
    assert lines(out / "t2i.jsonl")[0] == picture
    # A counterpart as positive would equal its anchor.
    assert lines(out / "text.jsonl") == [{**caption, "anchor": "one dot, in red"}]


def test_jsonl_has_everything(tmp_path: Path) -> None:
    out, _ = export(tmp_path, "jsonl")
    rows = lines(out / "pairs.jsonl")
    assert [row["pair_id"] for row in rows] == ["f1", "f2", "f3", "f4"]
    assert rows[0]["mismatches"] == [{"type": "attribute", "query": "red", "candidate": "big green"}]
    assert (out / rows[1]["image"]).read_bytes() == (tmp_path / "made/edit.tar").read_bytes()[
        len(encoded("#100000")) :
    ][: len(encoded("#101000"))]


def test_our_reader_reads_the_hugging_face_folder_back(tmp_path: Path) -> None:
    out, counts = export(tmp_path, "hf")
    assert counts == {"pairs": 4, "files": 1}
    records = [item for item in read(str(out), split="train") if isinstance(item, Record)]
    assert {r.image_id: r.captions for r in records} == {
        "A": ["a red dot, not green"],  # the reader collapses white space
        "B": ["a green dot"],
        "edit-f2": ["a red dot"],
        "edit-f3": ["a red dot"],
    }
    pixels = {r.image_id: pixel_hash(load_rgb(r.image.data)) for r in records if isinstance(r.image, InlineImage)}
    expected = {"A": JPEG, "B": PNG, "edit-f2": encoded("#101000"), "edit-f3": encoded("#102000")}
    assert pixels == {name: pixel_hash(load_rgb(data)) for name, data in expected.items()}


def test_hugging_face_metadata_and_card(tmp_path: Path) -> None:
    out, _ = export(tmp_path, "hf", shard_mb=1)
    path = out / "data/train-00000-of-00001.parquet"
    features = json.loads(pq.read_schema(path).metadata[b"huggingface"])["info"]["features"]
    assert features["image"] == features["neg_image"] == {"_type": "Image"}
    assert features["score"] == {"dtype": "float32", "_type": "Value"}
    assert list(features) == pq.read_schema(path).names
    card = (out / "README.md").read_text()
    header = yaml.safe_load(card.split("---\n")[1])
    assert header["configs"] == [
        {"config_name": "default", "data_files": [{"split": "train", "path": "data/train-*.parquet"}]}
    ]
    assert "license" not in header and "# license:" in card
    assert "synthetic" in header["tags"] and "1 captions and 2 pictures of these pairs are synthetic" in card


@pytest.mark.parametrize("format", FORMATS)
def test_the_same_bytes_each_time(tmp_path: Path, format: str) -> None:
    run, config = make_run(tmp_path)
    written = []
    for name in ("one", "two"):
        export_pairs(run, config, tmp_path / name, format)
        files = sorted((tmp_path / name).rglob("*"))
        written.append({p.relative_to(tmp_path / name): p.read_bytes() for p in files if p.is_file()})
    assert written[0] == written[1] and len(written[0]) >= 3


def test_datasets_shows_pictures(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets", reason="datasets is not installed")
    out, _ = export(tmp_path, "hf")
    rows = datasets.load_dataset(str(out), cache_dir=str(tmp_path / "cache"))["train"]
    assert isinstance(rows.features["neg_image"], datasets.Image)
    assert [row["neg_image"].size for row in rows] == [(8, 8)] * 4
    assert rows["caption"][0] == "a red\tdot, not green"
