"""A data set in which all is awkward: every picture gives its pixels or its reason, whatever it is read through."""

from __future__ import annotations

import io
import os
import shutil
import struct
import tarfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from repair_ray.data.images import ImageProblem
from repair_ray.data.inspect import inspect
from repair_ray.data.readers import read
from repair_ray.data.records import ImageRef, Record
from repair_ray.data.store import ImageStore

RED, GREEN, BLUE, WHITE = (255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 255)
ODD_NAMES = ("a name.with.dots and spaces ünïcödé 猫🐈.v2.final.png", 'comma, "quote".png', "hash#1.png", "%20.png")


def encode(image: Image.Image, format: str = "PNG", **options: Any) -> bytes:
    out = io.BytesIO()
    image.save(out, format, **options)
    return out.getvalue()


def row(*pixels: Any, mode: str = "RGB") -> Image.Image:
    image = Image.new(mode, (len(pixels), 1))
    for x, pixel in enumerate(pixels):
        image.putpixel((x, 0), pixel)
    return image


def palette() -> Image.Image:
    image = row(0, 1, 2, mode="P")
    image.putpalette([*RED, *GREEN, *BLUE])
    return image


def bomb() -> bytes:
    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 20000, 20000, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


def on_its_side() -> bytes:
    exif = Image.Exif()
    exif[274] = 6  # turn by 90 degrees clockwise: the stored row becomes a column
    return encode(row(RED, GREEN), exif=exif)


def noise() -> Image.Image:
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8))


# File -> its bytes, and its pixels as rows (by hand), or the reason why there are none.
FILES: dict[str, tuple[bytes, Any]] = {
    "truncated.jpg": (encode(noise(), "JPEG")[:2000], "truncated"),
    "empty.jpg": (b"", "empty"),
    "page.jpg": (b"<!DOCTYPE html><html>404</html>", "html"),
    "bomb.png": (bomb(), "bomb"),
    "cmyk.tif": (encode(row((0, 0, 0, 0), (0, 255, 255, 0), mode="CMYK"), "TIFF"), [[WHITE, RED]]),
    "grey16.png": (
        encode(Image.fromarray(np.array([[0, 32896, 65535]], np.uint16))),
        [[(v, v, v) for v in (0, 128, 255)]],
    ),
    "palette.png": (encode(palette(), transparency=bytes([255, 0, 51])), [[RED, WHITE, (204, 204, 255)]]),
    "rotated.png": (on_its_side(), [[RED], [GREEN]]),
    "animated.gif": (encode(row(RED), "GIF", save_all=True, append_images=[row(BLUE)]), [[RED]]),
    "dot.png": (encode(row(GREEN)), [[GREEN]]),
    **{name: (encode(row(BLUE, RED)), [[BLUE, RED]]) for name in ODD_NAMES},
}


def make_folder(folder: Path) -> str:
    folder.mkdir()
    for name, (data, _) in FILES.items():
        (folder / name).write_bytes(data)
        (folder / name).with_suffix(".txt").write_text(f"of {name}", encoding="utf-8")
    return str(folder)


def make_tar(folder: Path) -> str:
    path = Path(make_folder(folder))
    with tarfile.open(path / "all.tar", "w") as tar:
        for file in sorted(path.iterdir(), key=lambda file: (file.stem, file.suffix)):
            tar.add(file, file.name)
    return str(path / "all.tar")


def outcomes(path: str) -> dict[str, Any]:
    store = ImageStore("/")
    found: dict[str, Any] = {}
    for item in read(path):
        assert isinstance(item, Record) and isinstance(item.image, ImageRef), item
        assert item.captions == [f"of {item.image_id}"]
        try:
            found[item.image_id] = np.asarray(store.rgb(item.image.uri, item.image.offset, item.image.length))
        except ImageProblem as problem:
            found[item.image_id] = problem.reason
    return found


@pytest.mark.parametrize("make", [make_folder, make_tar])
def test_every_picture_gives_its_pixels_or_a_reason(tmp_path: Path, make: Any) -> None:
    path = make(tmp_path / "data")
    found = {name: out if isinstance(out, str) else out.tolist() for name, out in outcomes(path).items()}
    by_hand = {name: out if isinstance(out, str) else np.array(out).tolist() for name, (_, out) in FILES.items()}
    assert found == by_hand
    pictures = inspect(path)["pictures"]
    assert (pictures["opened"], pictures["usable"]) == (len(FILES), len(FILES) - 4)
    assert {problem["reason"] for problem in pictures["problems"]} == {"truncated", "empty", "html", "bomb"}
    bad = next(problem for problem in pictures["problems"] if problem["reason"] == "html")
    assert bad["first"]["detail"].startswith("page.jpg: ")


@pytest.mark.shared_data
def test_awkward_pictures_made_by_others(tmp_path: Path) -> None:
    shared = Path(os.environ.get("REPAIR_RAY_SHARED_DATA", "../shared/data")) / "awkward"
    if not shared.exists():
        pytest.skip(f"{shared} is absent (set REPAIR_RAY_SHARED_DATA)")
    shutil.copytree(shared, tmp_path / "data")
    names = [file.name for file in sorted((tmp_path / "data").iterdir())]
    for name in names:
        (tmp_path / "data" / name).with_suffix(".txt").write_text(f"of {name}", encoding="utf-8")
    found = outcomes(str(tmp_path / "data"))
    assert list(found) == names
    assert {name: reason for name, reason in found.items() if isinstance(reason, str)} == {
        "01_truncated.jpg": "truncated",
        "03_html_saved_as.jpg": "html",
        "11a_bomb_20000x20000.png": "bomb",
        "17_png_flipped_byte.png": "corrupt",
        "21_header_only.jpg": "truncated",
    }
    # Its transparent pixels lie on white, and its 16-bit grey is neither all white nor all black.
    assert tuple(found["05_rgba.png"][0, 0]) == WHITE
    assert 40 < found["07a_gray16.png"].mean() < 215
