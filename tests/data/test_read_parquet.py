from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from repair_ray.data.images import load_rgb, pixel_hash
from repair_ray.data.readers import read
from repair_ray.data.records import DataError, ImageRef, InlineImage, Record
from tests.data.reading import error, sort_out

SAMPLE = Path(__file__).parents[1] / "fixtures/emoji/sample.parquet"
IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


def write(file: Path, row_group_size: int = 100, **columns: Any) -> str:
    arrays = {name: pa.array(*values) if isinstance(values, tuple) else values for name, values in columns.items()}
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(arrays), file, row_group_size=row_group_size)
    return str(file)


def images(*data: bytes | None) -> Any:
    return [None if d is None else {"bytes": d, "path": "same.png"} for d in data], IMAGE


def test_the_sample_row_for_row() -> None:
    records, problems = sort_out(read(str(SAMPLE), batch_rows=7))
    rows = pq.read_table(SAMPLE).to_pylist()
    assert problems == []
    assert [r.image_id for r in records] == [row["image_id"] for row in rows]
    assert [r.captions for r in records] == [row["captions"] for row in rows]
    assert [r.image for r in records] == [InlineImage(row["image"]["bytes"], row["image"]["path"]) for row in rows]
    assert Counter(r.split for r in records) == {"train": 36, "validation": 12, "test": 12}
    assert records[5].source == f"{SAMPLE}:5"
    assert {r.group for r in records} == {None}  # its "group" column is a category, so it is not guessed


def test_the_sample_holds_what_its_attribution_says() -> None:
    records, _ = sort_out(read(str(SAMPLE), group_column="codepoints"))
    assert Counter(Counter(r.group for r in records).values()) == {2: 30}
    hashes = Counter(pixel_hash(load_rgb(r.image.data)) for r in records if isinstance(r.image, InlineImage))
    assert sorted(hashes.values())[-2:] == [1, 2]  # one pair of equal pictures
    assert (SAMPLE.parent / "ATTRIBUTION.md").exists()


def test_split_is_a_filter_under_any_of_its_names() -> None:
    for name in ("val", "validation", "dev"):
        assert len(list(read(str(SAMPLE), split=name))) == 12
    message = error(str(SAMPLE), split="holdout")
    assert "'holdout'" in message and "train (36)" in message and "data.split_column" in message
    assert len(list(read(str(SAMPLE), split="holdout", split_column=""))) == 60


def test_numbered_captions_keep_their_order(tmp_path: Path) -> None:
    columns: dict[str, Any] = {f"caption_{i}": [f"c{i}", None if i == 3 else f"d{i}"] for i in reversed(range(11))}
    file = write(tmp_path / "a.parquet", image=images(b"1", b"2"), **columns)
    for option in (None, "caption", "caption_*"):
        records, _ = sort_out(read(file, caption_column=option))
        assert set(records[0].captions) == {f"c{i}" for i in range(11)}
        assert len(records[1].captions) == 10
    assert sort_out(read(file))[0][0].captions == [f"c{i}" for i in range(11)]


def test_one_string_column_and_binary_images(tmp_path: Path) -> None:
    file = write(tmp_path / "a.parquet", jpg=([b"1", b"2"], pa.large_binary()), txt=["x", "y, z"], key=["k1", "k2"])
    records, _ = sort_out(read(file, id_column="key", split="train"))
    assert [(r.image_id, r.image, r.captions, r.split) for r in records] == [
        ("k1", InlineImage(b"1"), ["x"], "train"),
        ("k2", InlineImage(b"2"), ["y, z"], "train"),
    ]


def test_paths_in_a_column(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    names = ["a.b c#1.jpg", "absent.jpg", "../a.parquet", "/etc/passwd", "", None]
    (tmp_path / "photos" / names[0]).write_bytes(b"x")  # type: ignore[operator]
    file = write(tmp_path / "a.parquet", image_path=names, caption=["x"] * 6)
    records, problems = sort_out(read(file, image_root=str(tmp_path / "photos")))
    assert [(r.image_id, r.image) for r in records] == [(names[0], ImageRef(str(tmp_path / "photos" / "a.b c#1.jpg")))]
    reasons = ["missing_image", "path_escapes_root", "path_escapes_root", "no_image", "no_image"]
    assert [p.reason for p in problems] == reasons


def test_a_struct_that_holds_a_path_only(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"x")
    value = [{"bytes": None, "path": "a.png"}, {"bytes": None, "path": None}, None, {"bytes": b"", "path": ""}]
    file = write(tmp_path / "t.parquet", image=(value, IMAGE), caption=["x"] * 4)
    records, problems = sort_out(read(file))
    assert [(r.image_id, r.image) for r in records] == [("t.parquet:0", ImageRef(str(tmp_path / "a.png")))]
    assert [p.reason for p in problems] == ["no_image"] * 3


def test_rows_without_captions_are_problems(tmp_path: Path) -> None:
    captions = ([["x", None, " "], [], None, [" "]], pa.list_(pa.string()))
    file = write(tmp_path / "a.parquet", image=images(b"1", b"2", b"3", b"4"), captions=captions)
    records, problems = sort_out(read(file))
    assert [r.captions for r in records] == [["x"]]
    assert [(p.reason, p.source) for p in problems] == [("no_caption", f"{file}:{i}") for i in (1, 2, 3)]


@pytest.mark.parametrize("order", [[0, 1, 2, 3, 4], [0, 3, 1, 4, 2]])
def test_one_caption_a_row_becomes_one_record_an_image(tmp_path: Path, order: list[int]) -> None:
    rows = [(1, b"A", "a1"), (1, b"A", "a2"), (1, b"A", ""), (2, b"B", "b1"), (2, b"B", "b2")]
    chosen = [rows[i] for i in order]
    file = write(
        tmp_path / "a.parquet",
        row_group_size=2,
        image=images(*(row[1] for row in chosen)),
        image_id=[row[0] for row in chosen],
        caption=[row[2] for row in chosen],
    )
    records, problems = sort_out(read(file, batch_rows=2))
    assert {r.image_id: (r.image, r.captions) for r in records} == {
        "1": (InlineImage(b"A", "same.png"), ["a1", "a2"]),
        "2": (InlineImage(b"B", "same.png"), ["b1", "b2"]),
    }
    assert [p.reason for p in problems] == ["no_caption"]


def test_one_id_for_different_pictures_or_splits_is_refused(tmp_path: Path) -> None:
    file = write(
        tmp_path / "a.parquet",
        image=images(b"A", b"B", b"C", b"C", b"D"),
        image_id=["x", "x", "y", "y", "z"],
        split=["train", "train", "train", "test", "train"],
        caption=list("abcde"),
    )
    records, problems = sort_out(read(file))
    assert [r.image_id for r in records] == ["z"]
    assert [(p.reason, p.source) for p in problems] == [("ambiguous_id", f"{file}:0"), ("ambiguous_id", f"{file}:2")]
    assert "pictures" in problems[0].detail and "splits" in problems[1].detail


def test_folder_glob_braces_and_splits_by_file_name(tmp_path: Path) -> None:
    for name in ("train-00000-of-00002", "train-00001-of-00002", "validation-00000-of-00001"):
        write(tmp_path / "data" / f"{name}.parquet", image=images(name.encode()), text=[name])
    (tmp_path / "data" / ".hidden.parquet").write_bytes(b"no")
    (tmp_path / "data" / "README.md").write_text("text")
    whole, _ = sort_out(read(str(tmp_path / "data")))
    assert [(r.image_id, r.split) for r in whole] == [
        ("same.png", "train"),  # the name that came with the first bytes, and may be called so again
        ("train-00001-of-00002.parquet:0", "train"),
        ("validation-00000-of-00001.parquet:0", "validation"),
    ]
    for pattern in ("train-*.parquet", "train-0000{0..1}-of-00002.parquet", "train-{00000,00001}-of-00002.parquet"):
        some, _ = sort_out(read(str(tmp_path / "data" / pattern)))
        assert [(r.captions, r.split) for r in some] == [(r.captions, r.split) for r in whole[:2]]
    assert len(list(read(str(tmp_path), split="val"))) == 1
    assert "no such file or folder" in error(str(tmp_path / "data" / "{train,tset}-*.parquet"))


def test_splits_by_folder_name(tmp_path: Path) -> None:
    root = tmp_path / "test"  # above what was asked for, so it says nothing
    for folder in ("train", "validation", "other"):
        write(root / folder / "0000.parquet", image=images(b"1"), text=["x"])
    found, _ = sort_out(read(str(root)))
    assert [(r.image_id, r.split) for r in found] == [
        ("same.png", None),
        ("train/0000.parquet:0", "train"),
        ("validation/0000.parquet:0", "validation"),
    ]


def test_a_remote_folder() -> None:
    import fsspec

    with fsspec.open("memory://sets/emoji/test-0.parquet", "wb") as file:
        file.write(SAMPLE.read_bytes())
    assert len(list(read("memory://sets/emoji"))) == 60
    assert len(list(read("memory://sets/emoji/*.parquet", split="test"))) == 12
    assert "no such file" in error("memory://sets/nothing")


def test_wrong_columns_name_those_found_and_the_setting(tmp_path: Path) -> None:
    file = write(tmp_path / "a.parquet", photo=images(b"1"), words=["x"], size=[1])
    found = "Found: photo (struct<bytes: binary, path: string>), words (string), size (int64)"
    cases: list[tuple[dict[str, Any], str]] = [
        ({}, "set data.caption_column"),
        ({"caption_column": "text"}, "data.caption_column 'text' matches no column"),
        ({"caption_column": "size"}, "must be a string"),
        ({"caption_column": "words", "image_column": "image"}, "data.image_column 'image' is not a column"),
        ({"caption_column": "words", "image_column": "size"}, "must be struct<bytes, path>"),
        ({"caption_column": "words", "group_column": "g"}, "data.group_column 'g' is not a column"),
        ({"caption_column": "words", "split_column": "s"}, "data.split_column 's' is not a column"),
        ({"caption_column": "words", "id_column": "i"}, "data.id_column 'i' is not a column"),
    ]
    for options, expected in cases:
        message = error(file, **options)
        assert expected in message and found in message and file in message
    assert len(list(read(file, caption_column="words"))) == 1
    no_image = write(tmp_path / "b.parquet", words=["x"])
    assert "set data.image_column" in error(no_image, caption_column="words")


def test_a_later_file_with_other_columns_is_named(tmp_path: Path) -> None:
    write(tmp_path / "1.parquet", image=images(b"1"), text=["x"])
    second = write(tmp_path / "2.parquet", image=images(b"1"), words=["x"])
    assert second in error(str(tmp_path))


def test_files_that_are_missing_empty_damaged_or_another_format(tmp_path: Path) -> None:
    assert "no such file or folder" in error(str(tmp_path / "absent.parquet"))
    assert "empty folder" in error(str(tmp_path))
    assert "holds no rows" in error(write(tmp_path / "none.parquet", image=images(), text=([], pa.string())))
    damaged = tmp_path / "damaged.parquet"
    damaged.write_bytes(SAMPLE.read_bytes()[:5000])
    assert "not a readable Parquet file" in error(str(damaged))
    assert "unknown data.format 'psv'; known: img2dataset, " in error(str(SAMPLE), format="psv")
    assert "is a Parquet file, not karpathy" in error(str(SAMPLE), format="karpathy")
    (tmp_path / "x.tar").write_bytes(b"\0" * 257 + b"ustar\0" + b"\0" * 300)
    assert "is a tar" in error(str(tmp_path / "x.tar"))
    assert len(list(read(str(SAMPLE), format="parquet"))) == 60


def test_rows_come_before_the_file_is_through(tmp_path: Path) -> None:
    file = write(tmp_path / "a.parquet", row_group_size=1, image=images(b"1", b"2"), text=["x", "y"])
    second = pq.read_metadata(file).row_group(1).column(0)
    raw = bytearray(Path(file).read_bytes())
    start = second.dictionary_page_offset or second.data_page_offset
    raw[start : start + second.total_compressed_size] = b"\xff" * second.total_compressed_size
    Path(file).write_bytes(raw)
    stream = read(file, batch_rows=1)
    first = next(stream)  # the damage further on is not reached yet
    assert isinstance(first, Record) and first.captions == ["x"]
    with pytest.raises(DataError, match=r"a\.parquet is damaged"):
        next(stream)


@pytest.mark.shared_data
def test_emoji_made_by_others() -> None:
    shared = Path(os.environ.get("REPAIR_RAY_SHARED_DATA", "../shared/data")) / "emoji"
    if not shared.exists():
        pytest.skip(f"{shared} is absent (set REPAIR_RAY_SHARED_DATA)")
    records, problems = sort_out(read(str(shared)))
    assert problems == []
    assert Counter(r.split for r in records) == {"train": 6116, "validation": 802, "test": 654}
    assert len({r.image_id for r in records}) == 7572
