from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from repair_ray.data.readers import find_reader, read
from repair_ray.data.records import ImageRef
from tests.data.reading import error, sort_out


def fill(folder: Path, files: dict[str, str]) -> str:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content, encoding="utf-8")
    return str(folder)


def test_captions_beside_pictures(tmp_path: Path) -> None:
    path = fill(
        tmp_path,
        {
            "a.jpg": "1",
            "a.txt": '\ufefffirst\r\n\r\nsecond, with "quotes"\r\n',
            "b.v1.jpg": "2",
            "b.v1.txt": "of v1",
            "b.v2.jpg": "3",
            "b.v2.txt": "of v2",
            "c, #1 猫.PNG": "4",
            "c, #1 猫.json": json.dumps({"text": "a cat", "split": "val"}),
            "d.webp": "5",
            "d.webp.txt": "named in full",
            "e.jpg": "6",
            "e.json": json.dumps(["j1", "j2"]),
            "_DSC0001.JPG": "7",
            "_DSC0001.txt": "by a camera",
        },
    )
    records, problems = sort_out(read(path))
    assert problems == []
    assert {r.image_id: r.captions for r in records} == {
        "a.jpg": ["first", 'second, with "quotes"'],
        "b.v1.jpg": ["of v1"],
        "b.v2.jpg": ["of v2"],
        "c, #1 猫.PNG": ["a cat"],
        "d.webp": ["named in full"],
        "e.jpg": ["j1", "j2"],
        "_DSC0001.JPG": ["by a camera"],
    }
    assert {r.image_id: r.split for r in records}["c, #1 猫.PNG"] == "validation"
    assert [r.image for r in records if r.image_id == "b.v2.jpg"] == [ImageRef(str(tmp_path / "b.v2.jpg"))]
    assert len(sort_out(read(f"{path}/*.jpg"))[0]) == 4  # their texts need not be named


def test_folders_tell_the_split_and_names_do_not(tmp_path: Path) -> None:
    names = ["train/crash_test.jpg", "train/deep/x.jpg", "val/a.jpg", "test/a.jpg", "more/a-train.jpg"]
    path = fill(tmp_path, {**dict.fromkeys(names, "x"), **{name.replace(".jpg", ".txt"): "t" for name in names}})
    records, _ = sort_out(read(path))
    assert {r.image_id: r.split for r in records} == {
        "train/crash_test.jpg": "train",
        "train/deep/x.jpg": "train",
        "val/a.jpg": "validation",
        "test/a.jpg": "test",
        "more/a-train.jpg": None,
    }
    assert [r.image_id for r in sort_out(read(f"{path}/train", split="train"))[0]] == ["crash_test.jpg", "deep/x.jpg"]


def test_what_has_no_partner_is_told(tmp_path: Path) -> None:
    path = fill(
        tmp_path,
        {
            "a.jpg": "1",
            "a.txt": "x",
            "b.jpg": "2",
            "c.jpg": "3",
            "c.txt": " \n",
            "d.txt": "no picture",
            "e.jpg": "4",
            "e.json": "{",
        },
    )
    records, problems = sort_out(read(path))
    assert [r.image_id for r in records] == ["a.jpg"]
    assert [(p.source.rpartition("/")[2], p.reason) for p in problems] == [
        ("b.jpg:0", "no_caption"),
        ("c.jpg:0", "no_caption"),
        ("e.jpg:0", "bad_json"),
        ("d.txt:0", "no_image"),
    ]
    assert "data.id_column='number' names nothing" in error(path, id_column="number")
    assert "unset it" in error(path, image_root="/elsewhere")


def test_metadata_files_of_hugging_face(tmp_path: Path) -> None:
    path = fill(
        tmp_path,
        {
            "train/metadata.csv": '\ufefffile_name,text\na.jpg,"one, two"\na.jpg,"over\nlines"\n'
            "sub/b.v2.jpg,\n../../x.jpg,y\n",
            "train/a.jpg": "1",
            "train/sub/b.v2.jpg": "2",
            "test/metadata.jsonl": "\n".join(
                json.dumps(row)
                for row in (
                    {"file_name": "a.jpg", "captions": ["t1", "t2"]},
                    {"file_name": "no.jpg", "captions": ["t"]},
                )
            ),
            "test/a.jpg": "3",
            "test/unnamed.jpg": "4",
        },
    )
    records, problems = sort_out(read(path))
    assert [(r.image_id, r.captions, r.split) for r in records] == [
        ("test/a.jpg", ["t1", "t2"], "test"),
        ("train/a.jpg", ["one, two", "over lines"], "train"),
    ]
    assert records[1].image == ImageRef(str(tmp_path / "train/a.jpg"))
    assert [(p.reason, p.source.removeprefix(path)) for p in problems] == [
        ("missing_image", "/test/metadata.jsonl:1"),
        ("no_caption", "/train/metadata.csv:2"),
        ("path_escapes_root", "/train/metadata.csv:3"),
        ("no_caption", "/test/unnamed.jpg:0"),
    ]
    assert "data.caption_column 'words' matches no column" in error(path, caption_column="words")
    fill(tmp_path, {"train/metadata.csv": "image,text\na.jpg,x\n"})
    assert "has no column 'file_name'; found: image, text" in error(path)
    fill(tmp_path, {"train/metadata.csv": "file_name,text\na.jpg,x\n", "test/metadata.jsonl": "[1]\n"})
    assert "metadata.jsonl is not readable: line 1" in error(path)


def test_names_that_no_table_can_hold(tmp_path: Path) -> None:
    path = fill(tmp_path, {"a.jpg": "1", "a.txt": "x"})
    try:
        Path(os.fsdecode(os.fsencode(path) + b"/caf\xe9.jpg")).touch()
    except OSError:
        pytest.skip("this file system takes UTF-8 names alone")
    assert "not UTF-8: rename it" in error(path)
    assert "not UTF-8: rename it" in error(f"{path}/*.jpg")


def test_pictures_whose_captions_lie_elsewhere_are_not_taken(tmp_path: Path) -> None:
    fill(tmp_path, {"images/a.jpg": "1", "images/b.jpg": "2"})
    assert "2 no_caption" in error(str(tmp_path))
    fill(tmp_path, {"captions.csv": "image,caption\na.jpg,x\n"})
    assert find_reader(str(tmp_path))[0].name == "csv"
    assert "not laid out as image_folder" in error(str(tmp_path / "captions.csv"), format="image_folder")
