from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from repair_ray.data.readers import read
from repair_ray.data.records import DataError, ImageRef
from tests.data.reading import sort_out


def entry(name: str, split: str = "train", captions: tuple[str, ...] = ("a", "b"), **more: Any) -> dict[str, Any]:
    sentences = [{"tokens": text.split(), "raw": text, "imgid": 7, "sentid": i} for i, text in enumerate(captions)]
    return {"sentids": [], "imgid": 7, "sentences": sentences, "split": split, "filename": name, **more}


def write(folder: Path, entries: list[Any], photos: tuple[str, ...] = (), bom: bool = False) -> str:
    file = folder / "dataset_test.json"
    text = json.dumps({"images": entries, "dataset": "test"})
    file.write_bytes((b"\xef\xbb\xbf" if bom else b"") + text.encode())
    for name in photos:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"photo")
    return str(file)


def test_captions_stay_with_their_photo_whatever_imgid_says(tmp_path: Path) -> None:
    entries = [
        entry("b.jpg", "train", ("of b", "  also\tof b  "), imgid=5),
        entry("a 猫 #1, x.y.jpg", "val", ("of a",), imgid=0),
        entry("c.jpg", "restval", tuple(f"of c {i}" for i in range(7)), imgid=1),
        entry("d.jpg", "test", imgid=2),
    ]
    file = write(tmp_path, entries, ("a 猫 #1, x.y.jpg", "b.jpg", "c.jpg", "d.jpg"), bom=True)
    records, problems = sort_out(read(file))
    assert problems == []
    assert [(r.image_id, r.split, len(r.captions)) for r in records] == [
        ("b.jpg", "train", 2),
        ("a 猫 #1, x.y.jpg", "validation", 1),
        ("c.jpg", "train", 7),
        ("d.jpg", "test", 2),
    ]
    assert records[0].captions == ["of b", "also of b"]
    assert records[0].image == ImageRef(str(tmp_path / "b.jpg"))
    assert records[2].source == f"{file}:2"
    assert [r.image_id for r in sort_out(read(str(tmp_path), split="train"))[0]] == ["b.jpg", "c.jpg"]


def test_filepath_is_part_of_the_name(tmp_path: Path) -> None:
    entries = [entry("x.jpg", filepath="train2014"), entry("x.jpg", filepath="val2014")]
    file = write(tmp_path, entries, ("photos/train2014/x.jpg", "photos/val2014/x.jpg"))
    records, _ = sort_out(read(file, image_root=str(tmp_path / "photos")))
    assert [r.image_id for r in records] == ["train2014/x.jpg", "val2014/x.jpg"]
    assert records[1].image == ImageRef(str(tmp_path / "photos/val2014/x.jpg"))


def test_bad_entries_are_problems_with_a_place(tmp_path: Path) -> None:
    entries = [
        entry("good.jpg"),
        entry("absent.jpg"),
        entry("good2.jpg", captions=("", "  ")),
        {"filename": "good2.jpg", "split": "train"},
        entry("../secret.jpg"),
        entry("/etc/passwd"),
        entry("good.jpg"),
        {"imgid": 3, "sentences": []},
        "text",
    ]
    _, problems = sort_out(read(write(tmp_path, entries, ("good.jpg", "good2.jpg"))))
    assert [p.reason for p in problems] == [
        "missing_image",
        "no_caption",
        "repeated_id",
        "path_escapes_root",
        "path_escapes_root",
        "repeated_id",
        "bad_record",
        "bad_record",
    ]
    assert problems[0].source.endswith("dataset_test.json:1")
    assert "image_root" in problems[4].detail


def test_absolute_names_below_the_root(tmp_path: Path) -> None:
    file = write(tmp_path, [entry(str(tmp_path / "a.jpg"))], ("a.jpg",))
    records, _ = sort_out(read(file))
    assert (records[0].image_id, records[0].image) == ("a.jpg", ImageRef(str(tmp_path / "a.jpg")))


def test_an_object_of_entries_behind_other_keys(tmp_path: Path) -> None:
    entries = {f"{i}.jpg": entry(f"{i}.jpg", cocoid=i) for i in range(3)}
    file = tmp_path / "data.json"
    file.write_text(json.dumps({"dataset": "x" * 5000, "images": entries, "more": {"sentences": 1}}))
    for i in range(3):
        (tmp_path / f"{i}.jpg").write_bytes(b"photo")
    records, problems = sort_out(read(str(file)))
    assert [r.image_id for r in records] == ["0.jpg", "1.jpg", "2.jpg"]
    assert problems == []


def test_all_photos_missing_says_where_to_look(tmp_path: Path) -> None:
    file = write(tmp_path, [entry("a.jpg"), entry("b.jpg")])
    with pytest.raises(DataError, match=r"2 missing_image.*a\.jpg.*data\.image_root"):
        list(read(file))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"images": [{"sentences": [', "not readable JSON"),
        (b'{"images": {"sentences": 1}}', "JSON file of another layout .its keys: images"),
        (b'{"images": [{"sentences": 1}]}', r"\(karpathy: data.json\): 1 bad_record"),
        (b'{"images": [{"id": 1}], "annotations": []}', "JSON file of another layout"),
        (b"", "an empty file"),
        (b"A poem.\nIt has lines.\n", "text file .*A poem"),
    ],
)
def test_files_that_are_something_else(tmp_path: Path, content: bytes, message: str) -> None:
    file = tmp_path / "data.json"
    file.write_bytes(content)
    with pytest.raises(DataError, match=message):
        list(read(str(file)))


@pytest.mark.shared_data
def test_flickr8k_subset_made_by_others() -> None:
    shared = Path(os.environ.get("REPAIR_RAY_SHARED_DATA", "../shared/data"))
    if not (shared / "karpathy").exists():
        pytest.skip(f"{shared}/karpathy is absent (set REPAIR_RAY_SHARED_DATA)")
    records, problems = sort_out(read(str(shared / "karpathy"), image_root=str(shared / "flickr8k/images")))
    assert Counter(r.split for r in records) == {"train": 186, "validation": 27, "test": 24}
    assert Counter(p.reason for p in problems) == {"missing_image": 1570}
    # The caption file of another distribution agrees on which photo each caption belongs to.
    lines = (shared / "flickr8k/Flickr8k.token.txt").read_text().splitlines()
    known = {(line.split("#")[0], " ".join(line.split("\t", 1)[1].split())) for line in lines if "\t" in line}
    pairs = {(r.image_id, caption) for r in records for caption in r.captions}
    assert len(pairs & known) >= 0.99 * len(pairs)
