from __future__ import annotations

import hashlib
import os
import pickle
import tarfile
import threading
from pathlib import Path

import pytest
from PIL import Image

from repair_ray.data import store as store_module
from repair_ray.data.images import ImageProblem
from repair_ray.data.shards import ShardMember, ShardWriter, image_extension
from repair_ray.data.store import ImageStore

PAYLOADS = [
    b"",
    b"x",
    b"\x89PNG\r\n\x1a\n" + b"p" * 504,
    b"\xff\xd8\xff" + b"j" * 5000,
    b"RIFF....WEBPVP8 ",
    b"z" * 512,
]


def write(folder: Path, max_bytes: int = 10**6, prefix: str = "part") -> list[ShardMember]:
    with ShardWriter(str(folder), prefix, max_bytes) as writer:
        return [writer.add(data) for data in PAYLOADS]


def reason(store: ImageStore, *where: object) -> str:
    with pytest.raises(ImageProblem) as caught:
        store.bytes(*where)  # type: ignore[arg-type]
    return caught.value.reason


@pytest.mark.parametrize("max_bytes", [1, 3000, 10**6])
def test_ranges_equal_the_source_and_the_tar(tmp_path: Path, max_bytes: int) -> None:
    members = write(tmp_path, max_bytes)
    store = ImageStore(str(tmp_path))
    for data, member in zip(PAYLOADS, members, strict=True):
        assert store.bytes(member.shard, member.offset, member.length, member.sha256) == data
        assert member.sha256 == hashlib.sha256(data).hexdigest()
        with tarfile.open(tmp_path / member.shard) as tar:  # an independent reader finds the same
            info = tar.getmember(member.name)
            found = tar.extractfile(info)
            assert found is not None and found.read() == data
            assert (info.offset_data, info.size, info.mtime, info.uid, info.uname) == (
                member.offset,
                len(data),
                0,
                0,
                "",
            )
    assert len({member.shard for member in members}) == {1: 6, 3000: 3, 10**6: 1}[max_bytes]
    assert not [name for name in os.listdir(tmp_path) if name.startswith(".")]


def test_webdataset_keys_are_unique_and_have_one_dot(tmp_path: Path) -> None:
    names = [member.name for member in write(tmp_path)]
    keys, extensions = zip(*(name.split(".") for name in names), strict=True)
    assert len(set(keys)) == len(names)
    assert extensions == ("bin", "bin", "png", "jpg", "webp", "bin")


def test_same_members_same_bytes(tmp_path: Path) -> None:
    write(tmp_path / "a")
    write(tmp_path / "b")
    assert (tmp_path / "a/part-00000.tar").read_bytes() == (tmp_path / "b/part-00000.tar").read_bytes()


def test_names_never_come_from_text(tmp_path: Path) -> None:
    with ShardWriter(str(tmp_path), "s", 10**6) as writer:
        member = writer.add(b"data", key="../../etc/pass wd.猫.jpg")
    stem, extension = member.name.split(".")
    assert (len(stem), extension) == (64, "bin")
    assert set(stem) <= set("0123456789abcdef")
    for prefix in ("", "../x", ".hidden", "a/b"):
        with pytest.raises(ValueError, match="prefix"):
            ShardWriter(str(tmp_path), prefix, 10)


def test_a_shard_is_complete_or_absent(tmp_path: Path) -> None:
    writer = ShardWriter(str(tmp_path), "s", 10**6)
    writer.add(b"data")
    assert list(tmp_path.glob("*.tar")) == []
    writer.close()
    assert [file.name for file in tmp_path.iterdir()] == ["s-00000.tar"]

    with pytest.raises(RuntimeError), ShardWriter(str(tmp_path), "t", 10**6) as failing:
        failing.add(b"data")
        raise RuntimeError
    assert [file.name for file in tmp_path.iterdir()] == ["s-00000.tar"]


def test_nothing_added_writes_nothing(tmp_path: Path) -> None:
    with ShardWriter(str(tmp_path / "none"), "s", 10**6):
        pass
    assert not (tmp_path / "none").exists()


def test_uris_relative_to_the_run(tmp_path: Path) -> None:
    with ShardWriter(str(tmp_path / "images/source"), "s", 10**6, relative_to=str(tmp_path)) as writer:
        member = writer.add(b"data")
    assert member.ref().uri == "images/source/s-00000.tar"
    assert ImageStore(str(tmp_path)).bytes(member.shard, member.offset, member.length) == b"data"
    with pytest.raises(ValueError, match="not below"):
        ShardWriter("/elsewhere", "s", 10**6, relative_to=str(tmp_path))


def test_a_remote_folder() -> None:
    with ShardWriter("memory://bucket/run/shards", "s", 1, relative_to="memory://bucket/run") as writer:
        members = [writer.add(data) for data in PAYLOADS]
    store = ImageStore("memory://bucket/run")
    assert [store.bytes(m.shard, m.offset, m.length, m.sha256) for m in members] == PAYLOADS
    assert members[1].shard == "shards/s-00001.tar"
    assert reason(store, "../secret") == "path_escapes_root"
    assert reason(store, "shards/absent.tar", 0, 4) == "missing_file"


def test_a_path_never_leaves_the_root(tmp_path: Path) -> None:
    root = tmp_path / "run"
    root.mkdir()
    (tmp_path / "secret").write_bytes(b"secret")
    (root / "link").symlink_to(tmp_path / "secret")
    store = ImageStore(str(root))
    for uri in (
        "../secret",
        "a/../../secret",
        "a\\..\\..\\secret",
        "..",
        "",
        "a\0b",
        f"{tmp_path}/run/../secret",
        "link",
    ):
        assert reason(store, uri) == "path_escapes_root", uri


def test_files_in_place(tmp_path: Path) -> None:
    photo = tmp_path / "photos" / "a name.with #dots, “quotes” 猫.jpg"
    photo.parent.mkdir()
    photo.write_bytes(b"photo")
    root = str(tmp_path / "run")
    assert ImageStore(root).bytes(str(photo)) == b"photo"
    assert ImageStore(root, in_place=[str(photo.parent)]).bytes(str(photo)) == b"photo"
    assert reason(ImageStore(root, in_place=[str(tmp_path / "photo")]), str(photo)) == "path_escapes_root"
    assert reason(ImageStore(root, in_place=[]), str(photo)) == "path_escapes_root"


def test_what_goes_wrong_is_a_reason(tmp_path: Path) -> None:
    member = write(tmp_path)[3]
    store = ImageStore(str(tmp_path), max_bytes=4000)
    assert reason(store, "absent.jpg") == "missing_file"
    assert reason(store, "absent.tar", 0, 5) == "missing_file"
    assert reason(store, member.shard) == "too_large"
    assert reason(store, member.shard, member.offset, member.length) == "too_large"
    assert reason(store, member.shard, member.offset, 10, member.sha256) == "changed"
    assert reason(store, member.shard, 10**6, 10) == "truncated"
    assert reason(store, member.shard, -1, 10) == "unreadable"
    assert reason(store, member.shard, 0, None) == "unreadable"
    (tmp_path / "folder").mkdir()
    assert reason(store, "folder") in ("unreadable", "missing_file")


def test_pixels_with_the_stores_background_and_limits(tmp_path: Path) -> None:
    Image.new("RGBA", (3, 2), (0, 0, 0, 0)).save(tmp_path / "clear.png")
    image = ImageStore(str(tmp_path), background=(1, 2, 3)).rgb("clear.png")
    assert (image.size, image.getpixel((0, 0))) == ((3, 2), (1, 2, 3))
    with pytest.raises(ImageProblem, match="bomb"):
        ImageStore(str(tmp_path), max_pixels=5).rgb("clear.png")


def test_many_threads_with_fewer_handles_than_shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "OPEN_HANDLES", 2)
    members = write(tmp_path, max_bytes=1)
    store = ImageStore(str(tmp_path))
    wrong: list[str] = []

    def read_all() -> None:
        for _ in range(30):
            for data, m in zip(PAYLOADS, members, strict=True):
                if store.bytes(m.shard, m.offset, m.length) != data:
                    wrong.append(m.shard)

    threads = [threading.Thread(target=read_all) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert len(store._handles) == 2


def test_a_store_travels_between_processes(tmp_path: Path) -> None:
    member = write(tmp_path)[1]
    store = ImageStore(str(tmp_path), background=(9, 9, 9))
    store.bytes(member.shard, member.offset, member.length)
    copy = pickle.loads(pickle.dumps(store))
    assert copy.bytes(member.shard, member.offset, member.length) == b"x"
    assert copy.background == (9, 9, 9)


def test_extension_by_content() -> None:
    assert image_extension(b"GIF89a") == "gif"
    assert image_extension(b"\0\0\0 ftypavif") == "avif"
    assert image_extension(b"") == "bin"
