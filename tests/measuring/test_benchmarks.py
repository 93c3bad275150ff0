"""SugarCrepe, ARO, Winoground and zero-shot from made files: what is scored, what is missing, what is refused."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from repair_ray.data.compositional import SUGAR_CREPE, read_aro, read_sugarcrepe, read_winoground
from repair_ray.data.records import DataError
from repair_ray.engines.encoder import Encoder
from repair_ray.engines.retriever import RetrieverSpec
from tests.measuring.conftest import NAMES, measure
from tests.test_cli import refuse


@pytest.fixture(scope="module")
def base(made: Path) -> Encoder:
    return Encoder(RetrieverSpec("tiny-64", str(made / "run/base/training/model.safetensors")))


def right(encoder: Encoder, picture: Image.Image, text: str, wrong: str) -> bool:
    """An answer of the retriever, one case at a time."""
    scores = encoder.encode_texts([text, wrong]) @ encoder.encode_images([picture])[0]
    return bool(scores[0] > scores[1])


def pair(name: str, n: int) -> dict[str, str]:
    return {"filename": name, "caption": f"a dog and {n} cats", "negative_caption": f"{n} dogs and a cat"}


def write(path: Path, value: Any) -> str:
    path.write_text(json.dumps(value))
    return str(path)


def test_sugarcrepe_sub_sets_stay_apart_and_say_what_was_missing(workplace: Path, base: Encoder) -> None:
    folder = workplace / "sc"
    folder.mkdir()
    # Keys leave a number out, as one of the seven files does.
    swap = {"0": pair(NAMES[0], 2), "1": pair(NAMES[1], 3), "3": pair("gone.jpg", 4)}
    write(folder / "swap_obj.json", swap)
    write(folder / "add_att.json", {"0": pair(NAMES[2], 5), "1": pair("../../etc/passwd", 6)})
    write(folder / "add_obj.json", {"0": pair("gone.jpg", 7)})
    shown, found = measure("sugarcrepe", "run", "sc", "--image-root", ".")
    protocol = found["protocol"]
    assert {name: (part["scored"], part["listed"]) for name, part in protocol["subsets"].items()} == {
        "add_att": (1, 2),
        "add_obj": (0, 1),
        "swap_obj": (2, 3),
    }
    assert (protocol["scored"], protocol["listed"], protocol["missing"]["cases"]) == (3, 6, 3)
    assert protocol["missing"]["pictures"] == ["../../etc/passwd", "gone.jpg"]
    assert protocol["missing"]["reasons"] == {"path_escapes_root": 1, "missing_file": 1}
    assert protocol["absent_files"] == ["replace_att", "replace_obj", "replace_rel", "swap_att"]
    result = found["retrievers"]["base"]["results"]
    with Image.open(NAMES[0]) as first, Image.open(NAMES[1]) as second:
        hits = [
            right(base, image.convert("RGB"), case["caption"], case["negative_caption"])
            for image, case in ((first, swap["0"]), (second, swap["1"]))
        ]
    assert result["subsets"]["swap_obj"]["hits"] == sum(hits)
    assert result["subsets"]["add_obj"]["percent"] is None
    percents = [result["subsets"][name]["percent"] for name in ("add_att", "swap_obj")]
    assert (result["macro"], result["macro_of"]) == (pytest.approx(np.mean(percents)), 2)
    for part in ("3 of 6 cases were scored", "1 missing file", "gone.jpg", "a tie is wrong", "mean of 2 sub-sets"):
        assert part in shown


def test_sugarcrepe_without_pictures(workplace: Path) -> None:
    write(workplace / "swap_obj.json", {"0": pair("gone.jpg", 2)})
    line = refuse("evaluate", "sugarcrepe", "run", "swap_obj.json", "--image-root", ".")
    assert "none of the 1 cases can be scored" in line and "such as gone.jpg" in line and "--image-root" in line
    assert "no folder of pictures" in refuse("evaluate", "sugarcrepe", "run", "swap_obj.json", "--image-root", "no")


def boxed(name: str, x: int, width: int, **group: Any) -> dict[str, Any]:
    box = {"bbox_x": x, "bbox_y": 16, "bbox_w": width, "bbox_h": 32}
    return {
        "image_path": name,
        **box,
        "true_caption": "the dog on the mat",
        "false_caption": "the mat on the dog",
        **group,
    }


def test_aro_relations_crop_the_picture_and_average_over_relations(workplace: Path, base: Encoder) -> None:
    entries = [
        boxed(NAMES[0], 0, 16, relation_name="on"),
        boxed(NAMES[0], 32, 32, relation_name="on"),
        boxed(NAMES[1], 0, 64, relation_name="near"),
        boxed(NAMES[1], 0, 64, relation_name="beside"),
        boxed(NAMES[1], 80, 9, relation_name="near"),  # beyond the picture's 64 pixels
    ]
    file = write(workplace / "vgr.json", entries)
    (workplace / "both_ways.txt").write_text("beside\n")
    arguments = ("aro", "run", file, "--image-root", ".", "--which", "base", "--leave-out", "both_ways.txt")
    shown, found = measure(*arguments)
    hits = []
    for entry in entries[:3]:
        x, y, width, height = (entry[f"bbox_{side}"] for side in "xywh")
        with Image.open(entry["image_path"]) as image:
            part = image.convert("RGB").crop((x, y, x + width, y + height))
        hits.append(right(base, part, entry["true_caption"], entry["false_caption"]))
    result = found["retrievers"]["base"]["results"]
    assert {name: group["hits"] for name, group in result["groups"].items()} == {"on": sum(hits[:2]), "near": hits[2]}
    assert result["macro"] == pytest.approx(50 * (sum(hits[:2]) / 2 + hits[2]))
    assert result["left_out"] == {"few_cases": 0, "named": ["beside"], "cases": 1}
    assert found["protocol"]["missing"]["reasons"] == {"box_outside_picture": 1}
    assert "macro average" in shown


def test_aro_attributes_drop_pairs_with_few_cases(workplace: Path) -> None:
    entries = [boxed(NAMES[0], 0, 16 + n, attributes=["red", "big"]) for n in range(25)]
    entries += [boxed(NAMES[1], 0, 16 + n, attributes=["old", "wet"]) for n in range(24)]
    _, found = measure("aro", "run", write(workplace / "vga.json", entries), "--image-root", ".", "--which", "base")
    result = found["retrievers"]["base"]["results"]
    assert list(result["groups"]) == ["red_big"]
    assert result["left_out"] == {"few_cases": 1, "named": [], "cases": 24}
    assert (result["all"]["of"], found["protocol"]["min_cases"]) == (49, 25)


def test_aro_order_takes_the_first_option_as_true(workplace: Path, base: Encoder) -> None:
    options = [["a dog on a mat", "a mat on a dog", "dog a on mat a"], ["two cats", "cats two"]]
    entries = [{"image": NAMES[0], "caption_options": texts} for texts in options]
    _, found = measure("aro", "run", write(workplace / "order.json", entries), "--image-root", ".", "--which", "base")
    with Image.open(NAMES[0]) as image:
        picture = image.convert("RGB")
    hits = sum(all(right(base, picture, texts[0], other) for other in texts[1:]) for texts in options)
    result = found["retrievers"]["base"]["results"]["all"]
    assert (result["hits"], result["of"]) == (hits, 2)


def test_winoground_finds_pictures_without_their_suffix(workplace: Path, base: Encoder) -> None:
    for n in (0, 1):
        Image.open(NAMES[n]).convert("RGB").save(f"ex_0_img_{n}.png")
    texts = {"caption_0": "a man bites a dog", "caption_1": "a dog bites a man"}
    line = {"id": 0, "image_0": "ex_0_img_0", "image_1": "ex_0_img_1", **texts, "collapsed_tag": "Object"}
    Path("examples.jsonl").write_text(json.dumps(line) + "\n" + json.dumps({**line, "image_1": "ex_1_img_1"}) + "\n")
    shown, found = measure("winoground", "run", "examples.jsonl", "--image-root", ".", "--which", "base")
    images = base.encode_images([Image.open(f"ex_0_img_{n}.png").convert("RGB") for n in (0, 1)])
    score = base.encode_texts(list(texts.values())) @ images.T
    result = found["retrievers"]["base"]["results"]
    assert result["text"]["hits"] == int(score[0, 0] > score[1, 0] and score[1, 1] > score[0, 1])
    assert result["image"]["hits"] == int(score[0, 0] > score[0, 1] and score[1, 1] > score[1, 0])
    assert result["group"]["of"] == 1
    assert "1 of 2 cases were scored" in shown and "ex_1_img_1" in shown


def test_zero_shot_before_and_after(workplace: Path) -> None:
    for n, name in enumerate(["red_fox", "owl", "red_fox", "empty"]):
        Path("classes", name).mkdir(parents=True, exist_ok=True)
        if name != "empty":
            Path(NAMES[n]).rename(Path("classes", name, f"{n}.jpg"))
    Path("classes/owl/broken.jpg").write_bytes(b"<html>")
    Path("templates.txt").write_text("a photo of a {}.\n\na drawing of a {}.\n")
    shown, found = measure("zeroshot", "run", "classes", "--templates", "templates.txt")
    protocol = found["protocol"]
    assert (protocol["images"], protocol["classes"], protocol["empty_classes"]) == (3, 3, 1)
    assert protocol["unused"]["reasons"] == {"html": 1}
    assert protocol["templates"] == ["a photo of a {}.", "a drawing of a {}."]
    for label in ("base", "repaired"):
        result = found["retrievers"][label]["results"]
        assert result["top1"]["of"] == 3 and result["top5"] is None
    assert "base" in shown and "repaired" in shown and "chance 33.3 %" in shown
    Path("templates.txt").write_text("a photo\n")
    line = refuse("evaluate", "zeroshot", "run", "classes", "--templates", "templates.txt")
    assert "line 1: 'a photo' has no {} for the class" in line
    assert "at least two classes" in refuse("evaluate", "zeroshot", "run", "classes/owl")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"7": {"filename": "a.jpg", "caption": "a dog"}}, "swap_obj.json, key '7': negative_caption is None"),
        ([1], "must hold an object of cases, not list"),
    ],
)
def test_broken_sugarcrepe_files(tmp_path: Path, value: Any, expected: str) -> None:
    write(tmp_path / "swap_obj.json", value)
    with pytest.raises(DataError, match=expected):
        read_sugarcrepe(tmp_path)
    with pytest.raises(DataError, match="holds none of SugarCrepe's files"):
        read_sugarcrepe(tmp_path / "no")


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({"image_path": "a.jpg"}, "entry 0 has neither relation_name nor attributes nor caption_options"),
        (boxed("a.jpg", 0, 0, relation_name="on"), "entry 0: the box is 0 by 32 pixels"),
        ({**boxed("a.jpg", 0, 9, relation_name="on"), "bbox_x": "left"}, "entry 0: bbox_x, .* are not four numbers"),
        (boxed("a.jpg", 0, 9, attributes=["red"]), "entry 0: attributes is no list of two"),
        ({"image": "a.jpg", "caption_options": ["one"]}, "entry 0: caption_options is no list of at least two"),
    ],
)
def test_broken_aro_files(tmp_path: Path, entry: dict[str, Any], expected: str) -> None:
    write(tmp_path / "aro.json", [entry])
    with pytest.raises(DataError, match=expected):
        read_aro(tmp_path / "aro.json")


def test_broken_winoground_files(tmp_path: Path) -> None:
    file = tmp_path / "examples.jsonl"
    for text, expected in (
        ("{\n", "line 1 is not JSON"),
        ('\n{"image_0": "a"}', "line 2: image_1 is None"),
        ("", "holds no case"),
    ):
        file.write_text(text)
        with pytest.raises(DataError, match=expected):
            read_winoground(file)


@pytest.mark.shared_data
def test_the_seven_real_files(workplace: Path) -> None:
    """The numbers of cases are those that the authors state. Two pictures are made; all others are told as missing."""
    folder = Path(os.environ.get("REPAIR_RAY_SHARED_DATA", Path(__file__).parents[3] / "shared/data")) / "sugar_crepe"
    if not folder.is_dir():
        pytest.skip(f"{folder} is absent (set REPAIR_RAY_SHARED_DATA)")
    subsets = read_sugarcrepe(folder)
    sizes = {"add_att": 692, "add_obj": 2062, "replace_att": 788, "replace_obj": 1652}
    sizes |= {"replace_rel": 1406, "swap_att": 666, "swap_obj": 245}
    assert {name: len(cases) for name, cases in subsets.items()} == sizes and tuple(sizes) == SUGAR_CREPE
    names = [subsets[name][0].images[0] for name in ("swap_obj", "add_att")]
    for n, name in enumerate(names):
        Path(NAMES[n]).rename(name)
    _, found = measure("sugarcrepe", "run", str(folder), "--image-root", ".", "--which", "base")
    protocol = found["protocol"]
    expected = {s: sum(case.images[0] in names for case in cases) for s, cases in subsets.items()}
    assert {name: part["scored"] for name, part in protocol["subsets"].items()} == expected
    assert (protocol["scored"], protocol["listed"]) == (sum(expected.values()), 7511)
    pictures = {case.images[0] for cases in subsets.values() for case in cases}
    assert sorted(protocol["missing"]["pictures"]) == sorted(pictures - set(names))
    assert set(found["retrievers"]["base"]["results"]["subsets"]) == set(SUGAR_CREPE)
