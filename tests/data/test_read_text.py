"""Token files, CSV, TSV, and what is beside them. Expected values are written out by hand."""

from __future__ import annotations

import csv
import os
from pathlib import Path
from typing import Any

import pytest

from repair_ray.data.readers import find_reader, read
from repair_ray.data.records import ImageRef, Problem, Record
from tests.data.reading import captions_and_reasons, error, photos

# Names that tools split wrongly: dots, spaces, "#", commas, quotes, CJK.
ODD_NAMES = ["a.b.c.jpg", "two words.jpg", "no#1.jpg", "x, y.jpg", 'the "best".jpg', "猫.jpg", "semi;colon|pipe.jpg"]


def write(file: Path, text: str, encoding: str = "utf-8") -> str:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(text.encode(encoding))
    return str(file)


def splits(items: Any) -> dict[str, str | None]:
    return {item.image_id: item.split for item in items if isinstance(item, Record)}


TOKENS = (
    "b.jpg#1\tsecond of b\n"
    "a.jpg#0\t\tA dog ,\tits tail up .\n"
    "no#1.jpg#0\tname with a mark\n"
    "b.jpg#0\tfirst of b\r\n"
    "\n"
    "gone.jpg.1#0\ta caption without a photo\n"
    "gone.jpg.1#1\tand another\n"
    "a line of prose\n"
    "a.jpg#1\t   \n"
    "a.jpg#2 \tlast\n"
)


def test_token_lines_are_joined_by_photo_and_ordered_by_number(tmp_path: Path) -> None:
    photos(tmp_path / "images", "a.jpg", "b.jpg", "no#1.jpg")
    file = write(tmp_path / "some.token", "\ufeff" + TOKENS)
    assert find_reader(file)[0].name == "token"
    captions, problems = captions_and_reasons(read(file))
    assert captions == {
        "b.jpg": ["first of b", "second of b"],
        "a.jpg": ["A dog , its tail up .", "last"],
        "no#1.jpg": ["name with a mark"],
    }
    assert problems == {"missing_image": 1, "bad_record": 1, "no_caption": 1}
    bad = [item for item in read(file) if isinstance(item, Problem) and item.reason == "bad_record"]
    assert bad[0].source == f"{file}:7" and "prose" in bad[0].detail


def test_split_lists_beside_a_token_file(tmp_path: Path) -> None:
    photos(tmp_path / "images", *(f"{name}.jpg" for name in "a2cd"))
    write(tmp_path / "Flickr8k.token.txt", "".join(f"{name}.jpg#0\tof {name}\n" for name in "a2cd"))
    write(tmp_path / "Flickr8k.lemma.token.txt", "".join(f"{name}.jpg#0\tlemma\n" for name in "a2cd"))
    write(tmp_path / "Flickr_8k.trainImages.txt", "a.jpg\r\nabsent.jpg\r\n")
    write(tmp_path / "Flickr_8k.devImages.txt", "2\n")  # Flickr30k's lists leave the suffix out
    write(tmp_path / "readme_test.txt", "a.jpg is a photo, and so is b.jpg.\n" * 3)
    assert find_reader(str(tmp_path))[1] == [str(tmp_path / "Flickr8k.token.txt")]
    unlisted = {"c.jpg": "unlisted", "d.jpg": "unlisted"}
    assert splits(read(str(tmp_path))) == {"a.jpg": "train", "2.jpg": "validation", **unlisted}
    assert captions_and_reasons(read(str(tmp_path), split="train"))[0] == {"a.jpg": ["of a"]}
    assert splits(read(str(tmp_path), split="test", split_column="")) == dict.fromkeys(
        splits(read(str(tmp_path))), "test"
    )
    write(tmp_path / "Flickr_8k.testImages.txt", "c.jpg\na.jpg\n")
    assert "a.jpg is in" in error(str(tmp_path))


def test_a_token_file_has_no_columns(tmp_path: Path) -> None:
    file = write(tmp_path / "a.token", "a.jpg#0\tx\n")
    assert "data.caption_column" in error(file, caption_column="caption")


@pytest.mark.parametrize("separator", [",", "\t", "|", ";"])
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_csv_of_every_separator_with_awkward_names_and_captions(tmp_path: Path, separator: str, line_end: str) -> None:
    photos(tmp_path, *ODD_NAMES)
    awkward = ['He said "no", then left', "one; two | three\tfour", "of two\r\nlines", "#hashtag", "'single'"]
    rows = [(f"{i}", name, f"{text} {i}") for text in awkward for i, name in enumerate(ODD_NAMES)]
    with open(tmp_path / "data.txt", "w", encoding="utf-8-sig", newline="") as file:
        writer = csv.writer(file, delimiter=separator, lineterminator=line_end)
        writer.writerow(["id", " filepath ", "title"])
        writer.writerows(rows)
    captions, problems = captions_and_reasons(read(str(tmp_path / "data.txt")))
    assert problems == {}
    assert captions == {name: [" ".join(f"{text} {i}".split()) for text in awkward] for i, name in enumerate(ODD_NAMES)}


def test_kaggle_captions_and_results(tmp_path: Path) -> None:
    photos(tmp_path / "images", "1.jpg", "2199200615.jpg")
    one = write(
        tmp_path / "captions.txt",
        'image,caption\n1.jpg,"A dog , wet ."\n1.jpg,"She says ""hi"" ."\n2199200615.jpg,plain\n'
        "2199200615.jpg,A dog runs across the grass .\n",
    )
    two = write(
        tmp_path / "results.csv",
        "image_name| comment_number| comment\n"
        '1.jpg| 1| She says "hi" .\n'
        "1.jpg| 0| A dog , wet .\n"
        "2199200615.jpg| 3| plain\n"
        "2199200615.jpg| 4   A dog runs across the grass .\n",
    )
    expected = {
        "1.jpg": ["A dog , wet .", 'She says "hi" .'],
        "2199200615.jpg": ["plain", "A dog runs across the grass ."],
    }
    assert captions_and_reasons(read(one)) == (expected, {})
    assert captions_and_reasons(read(two)) == (expected, {})


def test_rows_that_no_rule_mends_are_problems(tmp_path: Path) -> None:
    photos(tmp_path, "a.jpg")
    file = write(
        tmp_path / "results.csv",
        "image_name| comment_number| comment\na.jpg| 0| good\na.jpg| without a number\na.jpg\n| 1| x\n\na.jpg| 2|\n",
    )
    items = list(read(file))
    problems = [item for item in items if isinstance(item, Problem)]
    assert [(p.reason, p.source[-2:]) for p in problems] == [
        ("bad_record", ":1"),
        ("bad_record", ":2"),
        ("no_image", ":3"),
        ("no_caption", ":4"),
    ]
    assert "2 fields where the header names 3 (separator: pipe)" in problems[0].detail
    # An extra field in a row whose caption is not last can be a shifted one: not guessed.
    wide = write(tmp_path / "wide.csv", "caption,image\nok,a.jpg\nred, blue,a.jpg\nempty cells after,a.jpg,,\n")
    assert captions_and_reasons(read(wide)) == ({"a.jpg": ["ok", "empty cells after"]}, {"bad_record": 1})


def test_clip_benchmark_lines_are_not_quoted(tmp_path: Path) -> None:
    photos(tmp_path, "a.jpg", "b, c.jpg")
    file = write(
        tmp_path / "flickr30k_test_karpathy.txt",
        'image,caption\na.jpg,Two dogs, one red, play.\na.jpg,"Stop" says the sign, and he stops.\n'
        'a.jpg,"An open quote\nb, c.jpg,A cat.\nnothing\n',
    )
    captions, problems = captions_and_reasons(read(file))
    assert captions == {
        "a.jpg": ["Two dogs, one red, play.", '"Stop" says the sign, and he stops.', '"An open quote'],
        "b, c.jpg": ["A cat."],
    }
    assert problems == {"bad_record": 1}
    assert set(splits(read(file)).values()) == {"test"}


def test_stray_quotes_do_not_swallow_rows(tmp_path: Path) -> None:
    photos(tmp_path, "a.jpg", "b.jpg", "c.jpg", "d.jpg")
    file = write(
        tmp_path / "data.tsv",
        'title\tfilepath\n"Stop" says the sign\ta.jpg\n"never closed\tb.jpg\n'
        '"two\nlines"\tc.jpg\nbefore the end\td.jpg\n"open at the end\td.jpg\n',
    )
    assert captions_and_reasons(read(file)) == (
        {
            "a.jpg": ['"Stop" says the sign'],
            "b.jpg": ['"never closed'],
            "c.jpg": ["two lines"],
            "d.jpg": ["before the end", '"open at the end'],
        },
        {},
    )


def test_negclip_columns_are_left_alone_and_lists_of_captions_are_taken(tmp_path: Path) -> None:
    photos(tmp_path, "a.jpg")
    file = write(
        tmp_path / "neg.tsv",
        "\ttitle\tfilepath\tneg_caption\tneg_image\n"
        '0\t"[\'one\', ""two\'s""]"\ta.jpg\t[\'x\', "y\'s"]\t[2973, 1515]\n'
        "1\t[sic] a caption\ta.jpg\t__import__('os').system('false')\t[\n"
        "2\t['unfinished\ta.jpg\t\t\n",
    )
    captions, problems = captions_and_reasons(read(file))
    assert captions == {"a.jpg": ["one", "two's", "[sic] a caption", "['unfinished"]}
    assert problems == {}


def test_settings_choose_columns(tmp_path: Path) -> None:
    photos(tmp_path / "p", "a.jpg", "b.jpg")
    file = write(
        tmp_path / "t.csv",
        "picture;words;key;part;scene\na.jpg;one;k1;train;s\nb.jpg;two;k2;dev;s\na.jpg;three;k1;train;s\n",
    )
    options = {"image_column": "picture", "caption_column": "words"}
    records = [
        item
        for item in read(
            file, **options, id_column="key", split_column="part", group_column="scene", image_root=str(tmp_path / "p")
        )
        if isinstance(item, Record)
    ]
    assert records == [
        Record("k1", ImageRef(str(tmp_path / "p/a.jpg")), ["one", "three"], "train", "s", f"{file}:0"),
        Record("k2", ImageRef(str(tmp_path / "p/b.jpg")), ["two"], "validation", "s", f"{file}:1"),
    ]
    message = error(file)
    assert "separator: semicolon" in message and "picture (string), words (string)" in message
    assert "data.image_column" in message
    assert "'nothing' is not a column" in error(file, **options, group_column="nothing")
    assert "no tab, comma, pipe, semicolon" in error(write(tmp_path / "odd.csv", "filepath:title\na.jpg:x\n"))
    assert "UTF-16" in error(write(tmp_path / "wide.csv", "image,caption\n", "utf-16"))
    assert "not UTF-8" in error(write(tmp_path / "old.csv", "image,caption\na.jpg,caf\xe9\n", "latin-1"))


def test_rows_of_one_picture_must_agree(tmp_path: Path) -> None:
    photos(tmp_path, "a.jpg", "b.jpg", "c.jpg")
    file = write(
        tmp_path / "t.csv",
        "image,caption,split,key\na.jpg,1,train,k\na.jpg,2,test,k\nb.jpg,3,train,m\nc.jpg,4,train,m\n",
    )
    assert captions_and_reasons(read(file)) == ({"b.jpg": ["3"], "c.jpg": ["4"]}, {"ambiguous_id": 1})
    assert captions_and_reasons(read(file, id_column="key", split_column=""))[1] == {"ambiguous_id": 1}


def test_files_named_for_splits_are_one_data_set(tmp_path: Path) -> None:
    photos(tmp_path / "images", "a.jpg", "b.jpg", "both.jpg")
    write(tmp_path / "train.csv", "image,caption\na.jpg,x\nboth.jpg,y\n")
    write(tmp_path / "val.csv", "image,caption\nb.jpg,x\nboth.jpg,y\n")
    write(tmp_path / "unrelated.csv", "image,caption\na.jpg,z\n")
    reader, files = find_reader(str(tmp_path))
    assert (reader.name, [Path(file).name for file in files]) == ("csv", ["train.csv", "val.csv"])
    assert splits(read(str(tmp_path))) == {"a.jpg": "train", "b.jpg": "validation"}
    assert captions_and_reasons(read(str(tmp_path)))[1] == {"ambiguous_id": 1}  # a picture of two splits is of neither
    assert len(find_reader(str(tmp_path / "*.csv"))[1]) == 3


def test_a_folder_with_two_layouts_says_which_it_took(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    write(tmp_path / "readme.txt", "Captions, and pictures.\n")
    write(tmp_path / "captions.txt", "image,caption\na.jpg,x\n")
    write(tmp_path / "Flickr8k.token.txt", "a.jpg#0\tx\n")
    assert "(token: Flickr8k.token.txt): 1 missing_image" in error(str(tmp_path))
    assert "(csv: captions.txt): 1 missing_image" in error(str(tmp_path), format="csv")
    assert "no file of layout json (*.json, *.jsonl, *.ndjson)" in error(str(tmp_path), format="json")


def test_pictures_are_looked_for_near_the_file_and_nowhere_else(tmp_path: Path) -> None:
    photos(tmp_path / "far", "a.jpg", "b.jpg")
    file = write(tmp_path / "set/text/data.csv", "image,caption\na.jpg,x\n./b.jpg,y\nb.jpg,z\n../../far/a.jpg,w\n")
    assert "missing_image" in error(file)
    photos(tmp_path / "set/few", "a.jpg")
    photos(tmp_path / "set/pics/all", "a.jpg", "b.jpg")
    assert "missing_image" in error(file)
    found = [item for item in read(str(tmp_path / "set")) if isinstance(item, Record)]
    assert [(r.image_id, r.captions, r.image) for r in found] == [
        ("a.jpg", ["x"], ImageRef(str(tmp_path / "set/pics/all/a.jpg"))),
        ("b.jpg", ["y", "z"], ImageRef(str(tmp_path / "set/pics/all/b.jpg"))),
    ]
    assert captions_and_reasons(read(str(tmp_path / "set")))[1] == {"path_escapes_root": 1}


@pytest.mark.shared_data
def test_flickr8k_reads_alike_from_three_files_made_by_others() -> None:
    shared = Path(os.environ.get("REPAIR_RAY_SHARED_DATA", "../shared/data"))
    if not (shared / "flickr8k").exists():
        pytest.skip(f"{shared}/flickr8k is absent (set REPAIR_RAY_SHARED_DATA)")
    tokens, problems = captions_and_reasons(read(str(shared / "flickr8k")))
    assert (len(tokens), sum(map(len, tokens.values())), problems) == (1000, 5000, {})
    assert captions_and_reasons(read(str(shared / "flickr8k/captions.txt"))) == (tokens, {})
    karpathy, _ = captions_and_reasons(read(str(shared / "karpathy"), image_root=str(shared / "flickr8k/images")))
    assert len(karpathy) == 237
    assert karpathy == {name: tokens[name] for name in karpathy}


@pytest.mark.shared_data
def test_negclip_file_made_by_others() -> None:
    shared = Path(os.environ.get("REPAIR_RAY_SHARED_DATA", "../shared/data"))
    if not (shared / "aro").exists():
        pytest.skip(f"{shared}/aro is absent (set REPAIR_RAY_SHARED_DATA)")
    with open(shared / "aro/valid_neg_clip.tsv", newline="") as file:
        names = {row["filepath"] for row in csv.DictReader(file, delimiter="\t")}
    assert f"(csv: valid_neg_clip.tsv): {len(names)} missing_image; the first" in error(str(shared / "aro"))
