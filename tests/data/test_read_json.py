"""COCO's captions, BLIP's lists, JSON lines, and how JSON files are told apart."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from repair_ray.data.readers import find_reader, read
from repair_ray.data.readers.json_stream import shape
from repair_ray.data.records import ImageRef, Problem, Record
from tests.data.reading import captions_and_reasons, error, photos


def write(file: Path, value: Any, bom: bool = False, **style: Any) -> str:
    file.parent.mkdir(parents=True, exist_ok=True)
    text = value if isinstance(value, str) else json.dumps(value, **style)
    file.write_bytes((b"\xef\xbb\xbf" if bom else b"") + text.encode())
    return str(file)


def coco(**more: Any) -> dict[str, Any]:
    pictures = [{"license": 1, "file_name": f"{i:03d}.jpg", "height": 4, "width": 4, "id": i} for i in (7, 3, 5, 9)]
    notes = [
        {"image_id": 3, "id": 1, "caption": " first of 3  "},
        {"image_id": 7, "id": 2, "caption": "of 7, \u732b"},
        {"image_id": 404, "id": 3, "caption": "of a picture that is not listed"},
        *[{"image_id": 3, "id": 4 + i, "caption": f"more {i}"} for i in range(6)],
        {"image_id": 7, "id": 20, "caption": "  "},
        {"image_id": 9, "id": 21, "caption": "of an absent photo"},
    ]
    return {"info": {"year": 2017}, "licenses": [], "images": pictures, "annotations": notes, "categories": [], **more}


def test_coco_captions_beside_their_photos(tmp_path: Path) -> None:
    photos(tmp_path / "train2017", "007.jpg", "003.jpg", "005.jpg")
    photos(tmp_path / "val2017", "007.jpg")
    file = write(tmp_path / "annotations/captions_train2017.json", coco(), bom=True)
    write(tmp_path / "annotations/instances_train2017.json", coco(annotations=[{"image_id": 3, "bbox": [1]}] * 9))
    for path in (file, str(tmp_path / "annotations"), str(tmp_path)):
        assert find_reader(path)[0].name == "coco" and find_reader(path)[1] == [file]
        items = list(read(path))
        records = [item for item in items if isinstance(item, Record)]
        assert records == [
            Record("007.jpg", ImageRef(str(tmp_path / "train2017/007.jpg")), ["of 7, 猫"], "train", None, f"{file}:0"),
            Record(
                "003.jpg",
                ImageRef(str(tmp_path / "train2017/003.jpg")),
                ["first of 3", *(f"more {i}" for i in range(6))],
                "train",
                None,
                f"{file}:1",
            ),
        ]
        assert {item.reason: item.source for item in items if isinstance(item, Problem)} == {
            "unknown_image": f"{file}:annotations:2",
            "bad_record": f"{file}:annotations:9",
            "no_caption": f"{file}:2",
            "missing_image": f"{file}:3",
        }


def test_coco_in_another_order_and_with_faults(tmp_path: Path) -> None:
    photos(tmp_path, "003.jpg")
    whole = coco()
    whole["images"] = [whole["images"][1], {"file_name": "other.jpg", "id": 3}, {"id": 8}, "text"]
    back = dict(reversed(whole.items()))
    assert next(iter(back)) == "categories"
    captions, problems = captions_and_reasons(read(write(tmp_path / "notes.json", back, indent=1)))
    assert list(captions) == ["003.jpg"] and len(captions["003.jpg"]) == 7
    assert problems == {"repeated_id": 1, "bad_record": 3, "unknown_image": 3}


def test_coco_without_captions_names_what_it_holds(tmp_path: Path) -> None:
    boxes = write(tmp_path / "instances_val2017.json", coco(annotations=[{"image_id": 3, "bbox": [1, 2]}] * 5))
    assert "without captions (its annotations hold bbox, image_id); take captions_*.json" in error(boxes)
    bare = coco()
    del bare["annotations"]
    assert "it has no annotations" in error(write(tmp_path / "image_info.json", bare))


BLIP = [
    {"image": "val/b.jpg", "caption": "b1", "image_id": "coco_1"},
    {"image": "a #1, x.jpg", "caption": ["a1", " a2 "], "image_id": "coco_2"},
    {"image": "val/b.jpg", "caption": "b2", "image_id": "coco_9"},
    {"image": "", "caption": "of nothing"},
    {"image": "val/b.jpg", "caption": []},
    {"image": "gone.jpg", "caption": "x"},
    "text",
]
BLIP_CAPTIONS = {"val/b.jpg": ["b1", "b2"], "a #1, x.jpg": ["a1", "a2"]}
BLIP_PROBLEMS = {"no_image": 1, "no_caption": 1, "missing_image": 1, "bad_record": 1}


def test_blip_as_a_list_as_lines_and_as_an_object(tmp_path: Path) -> None:
    photos(tmp_path, "val/b.jpg", "a #1, x.jpg")
    forms = {
        "list.json": json.dumps(BLIP),
        "pretty.json": json.dumps(BLIP, indent=2),
        "lines.jsonl": "\n\n".join(json.dumps(entry, ensure_ascii=False) for entry in BLIP) + "\n",
        "object.json": json.dumps({f"{i}": entry for i, entry in enumerate(BLIP)}),
    }
    for name, text in forms.items():
        file = write(tmp_path / name, text, bom=True)
        assert find_reader(file)[0].name == "json"
        assert captions_and_reasons(read(file)) == (BLIP_CAPTIONS, BLIP_PROBLEMS), name
    assert captions_and_reasons(read(str(tmp_path / "lines.jsonl"), id_column="image_id"))[0] == {
        "coco_1": ["b1"],
        "coco_2": ["a1", "a2"],
        "coco_9": ["b2"],
    }


def test_cusa_names_photos_by_absolute_paths(tmp_path: Path) -> None:
    photos(tmp_path / "p", "a.jpg")
    entries = [{"image_path": f"{tmp_path}/p/a.jpg", "caption": text, "image_id": "1"} for text in ("x", "y")]
    file = write(tmp_path / "train.json", [*entries, {"image_path": "/etc/passwd", "caption": "z"}])
    assert captions_and_reasons(read(file, image_root=str(tmp_path / "p"))) == (
        {"a.jpg": ["x", "y"]},
        {"path_escapes_root": 1},
    )


def test_neuraltalk2_and_lines_with_a_fault(tmp_path: Path) -> None:
    photos(tmp_path, "a.jpg", "b.jpg")
    raw = write(tmp_path / "raw.json", [{"file_path": "a.jpg", "captions": ["x", "y"], "id": 5}])
    assert captions_and_reasons(read(raw)) == ({"a.jpg": ["x", "y"]}, {})
    torn = write(
        tmp_path / "torn.jsonl",
        '{"image": "a.jpg", "caption": "x"}\n{"image": "b.jp\n{"image": "b.jpg", "caption": "y"}',
    )
    assert captions_and_reasons(read(torn)) == ({"a.jpg": ["x"], "b.jpg": ["y"]}, {"bad_record": 1})
    one = write(tmp_path / "one.jsonl", '{"image": "a.jpg", "text": "line\\u2028of one", "split": "val"}')
    assert [(i.split, i.captions) for i in read(one) if isinstance(i, Record)] == [("validation", ["line of one"])]


def test_json_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    photos(tmp_path, "a.jpg")
    assert "not readable JSON" in error(write(tmp_path / "a.json", '[{"image": "a.jpg", "caption": "x"}, {"im'))
    message = error(write(tmp_path / "b.json", [{"question": "what?", "answer": 3}]))
    assert "question (string), answer (int64)" in message and "data.image_column" in message
    other = error(write(tmp_path / "c.json", {"model": {"layers": 3}, "name": "x"}))
    assert "a JSON file of another layout (its keys: model, name)" in other
    assert "a coco JSON file, not karpathy" in error(write(tmp_path / "d.json", coco()), format="karpathy")


@pytest.mark.parametrize("size", [150, 400, 100_000])
def test_shape_of_a_beginning_that_ends_anywhere(size: int) -> None:
    entries = [{"filename": f"{i}.jpg", "sentences": [{"raw": '"images": [', "tokens": ["猫"]}]} for i in range(50)]
    for images in (entries, {str(i): entry for i, entry in enumerate(entries)}):
        found = shape(json.dumps({"dataset": "x", "images": images}, ensure_ascii=False).encode()[:size])
        assert (found.kind, found.top()) == ("object", ["dataset", "images"])
        assert found.of_entries("images") == {"filename", "sentences"}
    assert shape(b'{"image": "a"}\n{"image"').kind == "lines"
    assert shape(b"image,caption") == shape(b"")


@pytest.mark.shared_data
def test_coco_subset_made_by_others() -> None:
    shared = Path(os.environ.get("REPAIR_RAY_SHARED_DATA", "../shared/data"))
    if not (shared / "coco").exists():
        pytest.skip(f"{shared}/coco is absent (set REPAIR_RAY_SHARED_DATA)")
    captions, problems = captions_and_reasons(read(str(shared / "coco")))
    assert (len(captions), sum(map(len, captions.values())), problems) == (50, 250, {})
    assert captions["000000391895.jpg"][0] == "A man with a red helmet on a small moped on a dirt road."
