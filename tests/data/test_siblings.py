"""The same hundred pictures in ten layouts make the same tables."""

from __future__ import annotations

import csv
import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from repair_ray.config import parse_config
from repair_ray.data.images import pixel_hash
from repair_ray.data.store import ImageStore
from repair_ray.run import Run
from repair_ray.stages.sources import gather, sources_of

SPLITS = ("train", "validation", "test")
PLACES = ("uri", "offset", "length", "sha256", "source")


class Photos:
    """Pictures in a folder, with captions that hold commas, quotes, `#` and other letters."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.captions: dict[str, list[str]] = {}
        self.split: dict[str, str] = {}
        folder.mkdir()
        for number in range(100):
            name = f"photo_{number:03d}.png"
            pixels = np.random.default_rng(number).integers(0, 256, (6, 5, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / name)
            self.captions[name] = [f'a "{word}" dog, number {number} #{i} 猫' for i, word in enumerate(("big", "wet"))]
            self.captions[name] += ["the same caption under every picture"] * (number % 3 == 0)
            self.split[name] = SPLITS[number % 10 % 3 if number % 10 > 6 else 0]

    def of(self, split: str) -> list[str]:
        return [name for name in self.captions if self.split[name] == split]


def _split_lists(photos: Photos, folder: Path) -> None:
    for split, word in (("train", "train"), ("validation", "dev"), ("test", "test")):
        (folder / f"Flickr_8k.{word}Images.txt").write_text("\n".join(photos.of(split)) + "\n")


def karpathy(photos: Photos, out: Path) -> dict[str, Any]:
    short = {"validation": "val"}
    entries = [
        {
            "filename": name,
            "imgid": 7 * place,
            "split": short.get(photos.split[name], photos.split[name]),
            "sentences": [{"raw": text, "tokens": text.split()} for text in captions],
        }
        for place, (name, captions) in enumerate(photos.captions.items())
    ]
    (out / "dataset_flickr8k.json").write_text(json.dumps({"images": entries, "dataset": "flickr8k"}))
    return {"path": str(out / "dataset_flickr8k.json")}


def token(photos: Photos, out: Path) -> dict[str, Any]:
    lines = [f"{name}#{i}\t{text}\n" for name, texts in photos.captions.items() for i, text in enumerate(texts)]
    (out / "Flickr8k.token.txt").write_text("".join(lines))
    _split_lists(photos, out)
    return {"path": str(out / "Flickr8k.token.txt")}


def kaggle(photos: Photos, out: Path) -> dict[str, Any]:
    with (out / "captions.txt").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["image", "caption"])
        writer.writerows([name, text] for name, texts in photos.captions.items() for text in texts)
    _split_lists(photos, out)
    return {"path": str(out / "captions.txt")}


def results_csv(photos: Photos, out: Path) -> dict[str, Any]:
    rows = [f"{name}| {i}| {text}" for name, texts in photos.captions.items() for i, text in enumerate(texts)]
    (out / "results.csv").write_text("\n".join(["image_name| comment_number| comment", *rows]) + "\n")
    _split_lists(photos, out)
    return {"path": str(out / "results.csv")}


def tsv(photos: Photos, out: Path) -> dict[str, Any]:
    with (out / "pairs.tsv").open("w", newline="", encoding="utf-8-sig") as file:
        writer = csv.writer(file, delimiter="\t", lineterminator="\r\n")
        writer.writerow(["filepath", "title", "split"])
        # The rows of one picture need not follow each other.
        for place in range(3):
            for name, texts in photos.captions.items():
                writer.writerows([[name, text, photos.split[name]] for text in texts[place : place + 1]])
    return {"path": str(out / "pairs.tsv")}


def blip(photos: Photos, out: Path) -> dict[str, Any]:
    for split in SPLITS:
        entries = [{"image": name, "caption": photos.captions[name]} for name in photos.of(split)]
        (out / f"photos_{split}.json").write_text(json.dumps(entries))
    return {split: str(out / f"photos_{split}.json") for split in SPLITS}


def coco(photos: Photos, out: Path) -> dict[str, Any]:
    for split in SPLITS:
        names = photos.of(split)
        images = [{"id": place + 10, "file_name": name} for place, name in enumerate(names)]
        notes = [(image["id"], text) for image in images for text in photos.captions[str(image["file_name"])]]
        annotations = [{"image_id": i, "id": n, "caption": f" {text}\n"} for n, (i, text) in enumerate(notes)]
        made = {"info": {}, "licenses": [], "images": images, "annotations": annotations, "categories": []}
        (out / f"captions_{split}2017.json").write_text(json.dumps(made))
    return {split: str(out / f"captions_{split}2017.json") for split in SPLITS}


def webdataset(photos: Photos, out: Path) -> dict[str, Any]:
    for split in SPLITS:
        names = photos.of(split)
        for shard, part in enumerate((names[: len(names) // 2], names[len(names) // 2 :])):
            with tarfile.open(out / f"{split}-{shard:03d}.tar", "w") as tar:
                for name in part:
                    _add(tar, name, (photos.folder / name).read_bytes())
                    _add(tar, Path(name).stem + ".json", json.dumps({"captions": photos.captions[name]}).encode())
    return {"path": str(out / "*.tar"), "image_root": None}


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    tar.addfile(info, io.BytesIO(data))


def parquet(photos: Photos, out: Path) -> dict[str, Any]:
    rows = [
        {
            "image": {"bytes": (photos.folder / name).read_bytes(), "path": name},
            "captions": texts,
            "split": photos.split[name],
        }
        for name, texts in photos.captions.items()
    ]
    pq.write_table(pa.Table.from_pylist(rows), out / "data.parquet")
    return {"path": str(out / "data.parquet"), "image_root": None}


def image_folder(photos: Photos, out: Path) -> dict[str, Any]:
    for name, texts in photos.captions.items():
        (out / name).write_bytes((photos.folder / name).read_bytes())
        (out / name).with_suffix(".txt").write_text("\n".join(texts) + "\n")
    lines = [json.dumps({"file_name": name, "split": photos.split[name], "text": t}) for name, t in _pairs(photos)]
    (out / "metadata.jsonl").write_text("\n".join(lines) + "\n")
    return {"path": str(out), "image_root": None}


def _pairs(photos: Photos) -> list[tuple[str, str]]:
    return [(name, text) for name, texts in photos.captions.items() for text in texts]


LAYOUTS: list[Callable[[Photos, Path], dict[str, Any]]] = [
    karpathy,
    token,
    kaggle,
    results_csv,
    tsv,
    blip,
    coco,
    webdataset,
    parquet,
    image_folder,
]


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Photos:
    return Photos(tmp_path_factory.mktemp("photos") / "images")


def _tables(data: dict[str, Any], folder: Path) -> tuple[pa.Table, pa.Table]:
    config = parse_config({"data": {key: value for key, value in data.items() if value is not None}})
    run, files = Run(folder / "run"), (folder / "images.parquet", folder / "captions.parquet")
    gather(run, config, sources_of(config.data, folder), *files)
    images, captions = (pq.read_table(file) for file in files)
    store = ImageStore(str(run.folder))
    rows = [{**row, "pixels": _pixels(store, row)} for row in images.to_pylist()]
    plain = [{key: value for key, value in row.items() if key not in PLACES} for row in rows]
    return _sorted(plain, "image_id"), _sorted(captions.to_pylist(), "caption_id")


def _pixels(store: ImageStore, row: dict[str, Any]) -> str:
    return pixel_hash(store.rgb(row["uri"], row["offset"], row["length"]))


def _sorted(rows: list[dict[str, Any]], key: str) -> Any:
    return sorted(rows, key=lambda row: row[key])


@pytest.fixture(scope="module")
def expected(photos: Photos, tmp_path_factory: pytest.TempPathFactory) -> Any:
    out = tmp_path_factory.mktemp("karpathy")
    return _tables({**{"image_root": str(photos.folder)}, **karpathy(photos, out)}, out)


def test_the_tables_are_those_written_by_hand(photos: Photos, expected: Any) -> None:
    images, captions = expected
    assert len(images) == 100 and {row["status"] for row in images + captions} == {"ok"}
    by_image: dict[str, list[str]] = {}
    for row in sorted(captions, key=lambda row: row["position"]):
        by_image.setdefault(row["image_id"], []).append(row["text"])
    by_pixels = {pixel_hash(Image.open(photos.folder / name)): name for name in photos.captions}
    found = {by_pixels[row["pixels"]]: (row["split"], by_image[row["image_id"]]) for row in images}
    assert found == {name: (photos.split[name], texts) for name, texts in photos.captions.items()}


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.__name__)
def test_every_layout_makes_the_same_tables(
    layout: Callable[[Photos, Path], dict[str, Any]], photos: Photos, expected: Any, tmp_path: Path
) -> None:
    made = _tables({"image_root": str(photos.folder), **layout(photos, tmp_path)}, tmp_path)
    assert made == expected
