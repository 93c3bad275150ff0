from __future__ import annotations

import gzip
import io
import json
import os
import random
import tarfile
from collections import Counter
from pathlib import Path
from typing import Any

import fsspec
import pytest

from repair_ray.data.files import filesystem
from repair_ray.data.readers import read
from repair_ray.data.readers.base import ReadOptions
from repair_ray.data.readers.tar_headers import TarHeaders
from repair_ray.data.readers.webdataset import Sample, TarReader
from repair_ray.data.records import DataError, ImageRef, Record
from repair_ray.data.shards import ShardWriter
from repair_ray.data.store import ImageStore
from tests.data.reading import error, sort_out

Members = list[tuple[str, bytes | str]]


def tar_bytes(members: Members, format: int = tarfile.PAX_FORMAT) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=format) as tar:
        for name, content in members:
            data = content.encode() if isinstance(content, str) else content
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


def write(file: Path, members: Members) -> str:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(tar_bytes(members))
    return str(file)


def fetched(record: Record) -> bytes:
    assert isinstance(record.image, ImageRef)
    return ImageStore("/").bytes(record.image.uri, record.image.offset, record.image.length)


def test_pictures_stay_in_the_tar_and_captions_come_with_them(tmp_path: Path) -> None:
    one_json = json.dumps({"captions": ["j1", " j2 "], "split": "val", "image_id": 7})
    file = write(
        tmp_path / "a.tar",
        [
            ("plain.jpg", b"P" * 700),
            ("plain.txt", "one\ncaption, broken over lines"),
            ("Upper.JPEG", b"U"),
            ("Upper.TXT", "upper"),
            ("./dir.v1/猫 #1.png", b"C"),
            ("./dir.v1/猫 #1.json", one_json),
            ("x" * 150 + ".webp", b"L" * 513),  # a name that needs a header of its own
            ("x" * 150 + ".json", json.dumps({"caption": "long"})),
            ("__meta__/x.jpg", b"M"),
            ("._plain.jpg", b"resource fork"),
            ("README", "no sample"),
        ],
    )
    records, problems = sort_out(read(file))
    assert problems == []
    assert [(r.image_id, r.captions, r.split, fetched(r)) for r in records] == [
        ("plain.jpg", ["one caption, broken over lines"], None, b"P" * 700),
        ("Upper.JPEG", ["upper"], None, b"U"),
        ("dir.v1/猫 #1.png", ["j1", "j2"], "validation", b"C"),
        ("x" * 150 + ".webp", ["long"], None, b"L" * 513),
    ]
    with tarfile.open(file) as tar:  # an independent reader finds the same place
        assert records[0].image == ImageRef(file, tar.getmember("plain.jpg").offset_data, 700)
    assert records[2].source == f"{file}:2"
    assert [path.name for path in tmp_path.iterdir()] == ["a.tar"]


def test_names_with_dots(tmp_path: Path) -> None:
    file = write(
        tmp_path / "a.tar",
        [
            # Key "a": two pictures of one key, each with its own text.
            ("a.v1.jpg", b"1"),
            ("a.v1.txt", "first"),
            ("a.v2.jpg", b"2"),
            ("a.v2.txt", "second"),
            # Key "b": one picture and one text, whose names differ after the first dot.
            ("b.final.png", b"3"),
            ("b.txt", "third"),
            # Key "c": a mask beside its picture is a part of the sample, no picture without a caption.
            ("c.jpg", b"4"),
            ("c.mask.png", b"m"),
            ("c.txt", "fourth"),
            # Key "d": of two pictures one has no caption.
            ("d.v1.jpg", b"5"),
            ("d.v2.jpg", b"6"),
            ("d.v2.txt", "sixth"),
        ],
    )
    records, problems = sort_out(read(file))
    assert [(r.image_id, r.captions, fetched(r)) for r in records] == [
        ("a.v1.jpg", ["first"], b"1"),
        ("a.v2.jpg", ["second"], b"2"),
        ("b.final.png", ["third"], b"3"),
        ("c.jpg", ["fourth"], b"4"),
        ("d.v2.jpg", ["sixth"], b"6"),
    ]
    assert [(p.reason, p.detail[:9]) for p in problems] == [("no_caption", "d.v1.jpg ")]


def test_shards_that_this_package_writes_keep_their_captions(tmp_path: Path) -> None:
    with ShardWriter(str(tmp_path / "own"), "s", 10**6) as writer:
        member = writer.add(b"\xff\xd8\xffdata", key="a name.with #dots.jpg")
    stored = (tmp_path / "own" / member.shard).read_bytes()[member.offset : member.offset + member.length]
    file = write(tmp_path / "b.tar", [(member.name, stored), (member.name.replace(".jpg", ".txt"), "a caption")])
    assert [(r.image_id, r.captions) for r in sort_out(read(file))[0]] == [(member.name, ["a caption"])]


def test_keys_that_come_again(tmp_path: Path) -> None:
    pair: Members = [("s1.jpg", b"1"), ("s1.txt", "x")]
    write(tmp_path / "train/0.tar", pair)
    write(tmp_path / "train/1.tar", [*pair, ("s2.jpg", b"2"), ("s2.txt", "y"), *pair])
    write(tmp_path / "test/0.tar", pair)
    records, problems = sort_out(read(str(tmp_path)))
    assert [(r.image_id, r.split) for r in records] == [
        ("s1.jpg", "test"),
        ("train/0.tar/s1.jpg", "train"),
        ("train/1.tar/s1.jpg", "train"),
        ("s2.jpg", "train"),
    ]
    assert [(p.reason, p.source) for p in problems] == [("repeated_id", f"{tmp_path}/train/1.tar:2")]


def test_members_that_do_not_follow_each_other_are_no_sample(tmp_path: Path) -> None:
    file = write(tmp_path / "a.tar", [("a.jpg", b"1"), ("b.jpg", b"2"), ("a.txt", "x"), ("b.txt", "y")])
    assert "2 no_caption, 2 no_image" in error(file)
    _, problems = sort_out(_until_error(file))
    assert "--sort=name" in problems[2].detail


def _until_error(path: str) -> Any:
    try:
        yield from read(path)
    except DataError:
        return


def test_retrieval_layout_has_a_caption_a_line(tmp_path: Path) -> None:
    members: Members = [("s0.jpg", b"1"), ("s0.txt", "one\ntwo\\nhalves\n\n")]
    write(tmp_path / "test/0.tar", members)
    assert sort_out(read(str(tmp_path)))[0][0].captions == ["one two\\nhalves"]
    (tmp_path / "dataset_type.txt").write_text("retrieval\n")
    (tmp_path / "test/nshards.txt").write_text("1")
    records, _ = sort_out(read(str(tmp_path)))
    assert [(r.captions, r.split) for r in records] == [(["one", "two halves"], "test")]


def test_triplets_give_their_positive_pair(tmp_path: Path) -> None:
    members: Members = [("1.caption", "p"), ("1.image", b"P"), ("1.neg_caption", "n"), ("1.neg_image", b"N")]
    file = write(tmp_path / "a.tar", members)
    assert [(r.image_id, r.captions, fetched(r)) for r in sort_out(read(file))[0]] == [("1.image", ["p"], b"P")]
    records, _ = sort_out(read(file, image_column="neg_image", caption_column="neg_caption"))
    assert [(r.image_id, r.captions, fetched(r)) for r in records] == [("1.neg_image", ["n"], b"N")]


def test_columns_are_keys_of_the_json(tmp_path: Path) -> None:
    fields = {"words": "w", "caption": "c", "part": "dev", "photo": 12, "thing": "cup", "split": "test"}
    file = write(tmp_path / "a.tar", [("1.jpg", b"1"), ("1.json", json.dumps(fields)), ("1.txt", "t")])
    record = next(iter(read(file)))
    assert isinstance(record, Record) and (record.captions, record.split) == (["t"], "test")
    named = read(file, caption_column="words", split_column="part", id_column="photo", group_column="thing")
    assert [(r.image_id, r.captions, r.split, r.group) for r in sort_out(named)[0]] == [
        ("12", ["w"], "validation", "cup")
    ]
    assert sort_out(read(file, split_column=""))[0][0].split is None
    message = error(file, group_column="things")
    assert "data.group_column='things' names nothing" in message and "photo, split, thing, words" in message


def test_what_is_wrong_with_a_sample_is_told(tmp_path: Path) -> None:
    file = tmp_path / "a.tar"
    with tarfile.open(file, "w") as tar:

        def add(name: str, data: bytes = b"x", kind: bytes = tarfile.REGTYPE, link: str = "") -> None:
            info = tarfile.TarInfo(name)
            info.size, info.type, info.linkname = (len(data) if kind == tarfile.REGTYPE else 0), kind, link
            tar.addfile(info, io.BytesIO(data))

        add("good.jpg")
        add("good.txt")
        add("../../etc/cron.d/evil.jpg")
        add("../../etc/cron.d/evil.txt")
        add("link.jpg", kind=tarfile.SYMTYPE, link="/etc/passwd")
        add("link.txt")
        add("latin.jpg")
        add("latin.txt", "café".encode("latin-1"))
        add("json.jpg")
        add("json.json", b'{"caption": ')
        add("blank.jpg")
        add("blank.txt", b" \n")
        add("huge.jpg")
        add("huge.txt", b"x" * (2**20 + 1))
        add("folder.jpg", kind=tarfile.DIRTYPE)
    records, problems = sort_out(read(str(file)))
    assert [r.image_id for r in records] == ["good.jpg", "../../etc/cron.d/evil.jpg"]
    assert [p.reason for p in problems] == ["link", "not_utf8", "bad_json", "no_caption", "too_large"]
    assert fetched(records[1]) == b"x"  # a name is only a name
    assert [path.name for path in tmp_path.iterdir()] == ["a.tar"]


PAIRS: Members = [member for i in range(3) for member in ((f"s{i}.jpg", b"J" * 600), (f"s{i}.txt", f"caption {i}"))]


@pytest.mark.parametrize(
    ("size", "kept", "reason"),
    [
        # Each pair takes 512 + 1024 and 512 + 512 bytes.
        (0, 0, "truncated"),
        (300, 0, "truncated"),
        (2560 + 512 + 100, 1, "truncated"),  # inside a picture
        (2560 + 1536 + 100, 1, "truncated"),  # inside the header of a text
        (2560 * 2, 2, "truncated"),  # between two samples
        (2560 * 3, 3, "truncated"),  # nothing missing but the end mark
        (None, 3, None),
    ],
)
def test_a_tar_that_was_cut(tmp_path: Path, size: int | None, kept: int, reason: str | None) -> None:
    (tmp_path / "b.tar").write_bytes(tar_bytes(PAIRS)[:size])
    write(tmp_path / "a.tar", [("first.jpg", b"1"), ("first.txt", "x")])
    write(tmp_path / "c.tar", [("last.jpg", b"1"), ("last.txt", "x")])
    records, problems = sort_out(read(str(tmp_path)))
    assert [r.image_id for r in records] == ["first.jpg", *(f"s{i}.jpg" for i in range(kept)), "last.jpg"]
    assert [p.reason for p in problems if p.reason != "no_caption"] == ([reason] if reason else [])
    assert all(p.source.startswith(f"{tmp_path}/b.tar:") for p in problems)


def test_damaged_headers_end_a_tar(tmp_path: Path) -> None:
    data = bytearray(tar_bytes(PAIRS))
    data[2560 : 2560 + 10] = b"\xff" * 10
    (tmp_path / "a.tar").write_bytes(data)
    records, problems = sort_out(read(str(tmp_path)))
    assert ([r.image_id for r in records], [p.reason for p in problems]) == (["s0.jpg"], ["damaged_tar"])
    assert "2560" in problems[0].detail
    # A member of negative size would send tarfile back to where it was.
    info = tarfile.TarInfo("s3.jpg")
    info.size = -1024
    header = info.tobuf(tarfile.GNU_FORMAT)
    (tmp_path / "a.tar").write_bytes(tar_bytes(PAIRS)[: 2560 * 3] + header + b"\0" * 1024)
    records, problems = sort_out(read(str(tmp_path)))
    assert (len(records), [p.reason for p in problems]) == (3, ["damaged_tar"])


def test_compressed_and_empty_tars(tmp_path: Path) -> None:
    (tmp_path / "a.tar.gz").write_bytes(gzip.compress(tar_bytes(PAIRS)))
    assert "is compressed" in error(str(tmp_path)) and "gunzip" in error(str(tmp_path / "a.tar.gz"))
    (tmp_path / "b.tar").write_bytes(gzip.compress(tar_bytes(PAIRS)))
    assert "b.tar is compressed" in error(str(tmp_path / "b.tar"))
    (tmp_path / "b.tar").write_bytes(tar_bytes([]))
    assert "holds no rows" in error(str(tmp_path / "b.tar"))
    (tmp_path / "b.tar").write_bytes(b"<html>" * 100)
    assert "text file" in error(str(tmp_path / "b.tar"))


def test_an_object_store_with_globs_and_braces() -> None:
    for shard in range(2):
        with fsspec.open(f"memory://wds/train-{shard}.tar", "wb") as file:
            file.write(tar_bytes([(f"s{shard}.jpg", b"J" * 9000), (f"s{shard}.txt", "x")]))
    for path in ("memory://wds", "memory://wds/*.tar", "memory://wds/train-{0..1}.tar"):
        records, problems = sort_out(read(path, split="train"))
        assert ([r.image_id for r in records], problems) == (["s0.jpg", "s1.jpg"], [])
        assert fetched(records[1]) == b"J" * 9000


def test_the_hub_is_reached_by_its_own_file_system() -> None:
    found, inner = filesystem("hf://datasets/org/name/data/train-00000.tar")
    assert type(found.handler.fs).__name__ == "HfFileSystem"  # type: ignore[attr-defined]
    assert inner == "datasets/org/name/data/train-00000.tar"


@pytest.mark.filterwarnings("ignore")
def test_the_same_samples_as_the_webdataset_package(tmp_path: Path) -> None:
    wds = pytest.importorskip("webdataset", reason="the webdataset package is not installed")
    draw = random.Random(0)
    stems = ["a", "b c", "d/e", "d.x/e", "./f", "猫", "a.b", "A", "g#1", "h/./i", "__m__/x", "no"]
    suffixes = ["jpg", "TXT", "json", "v1.jpg", "v1.txt", "seg.PNG", "cls"]
    names = [f"{draw.choice(stems)}.{draw.choice(suffixes)}" for _ in range(400)] + ["README", "__meta__"]
    kept: list[str] = []
    for name in names:  # the package refuses a suffix that comes twice in one sample
        if not kept or name.lower() not in {other.lower() for other in kept[-9:]}:
            kept.append(name)
    file = write(tmp_path / "a.tar", [(name, name) for name in kept])
    theirs = [
        (sample["__key__"], [key for key in sample if not key.startswith("__")])
        for sample in wds.tariterators.tarfile_samples([{"url": file}])
    ]
    with TarHeaders(file) as tar:
        found = list(TarReader(file, [file], ReadOptions()).samples(tar))
    ours = [(sample.key, list(sample.members)) for sample in found if isinstance(sample, Sample)]
    assert len(theirs) > 200 and ours == theirs


@pytest.mark.shared_data
def test_tars_of_pictures_alone_made_by_others() -> None:
    shared = Path(os.environ.get("REPAIR_RAY_SHARED_DATA", "../shared/data")) / "webdataset"
    if not shared.exists():
        pytest.skip(f"{shared} is absent (set REPAIR_RAY_SHARED_DATA)")
    assert "9 no_caption" in error(str(shared))
    _, problems = sort_out(_until_error(str(shared)))
    assert Counter(p.source.rpartition("/")[2].split(":")[0] for p in problems) == {
        "image1.tar": 4,
        "image2.tar": 3,
        "image3.tar": 2,
    }
