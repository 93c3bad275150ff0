from __future__ import annotations

import hashlib
import io
import os
import pickle
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from repair_ray.data.images import ImageProblem, load_rgb, pixel_hash

RED, GREEN, BLUE, WHITE, BLACK = (255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 255), (0, 0, 0)


def encode(image: Image.Image, format: str = "PNG", **options: Any) -> bytes:
    out = io.BytesIO()
    image.save(out, format, **options)
    return out.getvalue()


def pixels(data: bytes, **options: Any) -> list[list[tuple[int, ...]]]:
    array = np.asarray(load_rgb(data, **options))
    return [[tuple(int(v) for v in pixel) for pixel in row] for row in array]


def png_chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png_header(width: int, height: int, depth: int = 8, colour: int = 2) -> bytes:
    return b"\x89PNG\r\n\x1a\n" + png_chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0))


def gradient(width: int, height: int) -> Image.Image:
    noise = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(noise)


@pytest.mark.parametrize("format", ["PNG", "TIFF"])
def test_16_bit_grey_is_scaled_not_clipped(format: str) -> None:
    grey = Image.fromarray(np.array([[0, 257, 32896, 65535, 384, 386]], dtype=np.uint16))
    # value * 255 / 65535, rounded: 384 / 257 = 1.49 and 386 / 257 = 1.50
    assert pixels(encode(grey, format)) == [[(v, v, v) for v in (0, 1, 128, 255, 1, 2)]]


def test_16_bit_grey_written_by_hand() -> None:
    rows = b"\0" + struct.pack(">3H", 0, 0x8080, 0xFFFF)
    data = png_header(3, 1, 16, 0) + png_chunk(b"IDAT", zlib.compress(rows)) + png_chunk(b"IEND", b"")
    assert pixels(data) == [[(0, 0, 0), (128, 128, 128), (255, 255, 255)]]


def test_16_bit_grey_with_a_transparent_value() -> None:
    rows = b"\0" + struct.pack(">2H", 0, 0xFFFF)
    body = png_chunk(b"tRNS", struct.pack(">H", 0)) + png_chunk(b"IDAT", zlib.compress(rows))
    data = png_header(2, 1, 16, 0) + body + png_chunk(b"IEND", b"")
    assert pixels(data, background=RED) == [[RED, WHITE]]


# Where the top left and top right corner of the stored picture go, for each EXIF orientation.
CORNERS = {
    1: ((0, 0), (0, -1)),
    2: ((0, -1), (0, 0)),
    3: ((-1, -1), (-1, 0)),
    4: ((-1, 0), (-1, -1)),
    5: ((0, 0), (-1, 0)),
    6: ((0, -1), (-1, -1)),
    7: ((-1, -1), (0, -1)),
    8: ((-1, 0), (0, 0)),
}


@pytest.mark.parametrize("orientation", CORNERS)
def test_upright_by_exif(orientation: int) -> None:
    stored = Image.new("RGB", (3, 2), BLACK)
    stored.putpixel((0, 0), RED)
    stored.putpixel((2, 0), GREEN)
    exif = Image.Exif()
    exif[274] = orientation
    upright = np.asarray(load_rgb(encode(stored, exif=exif)))
    assert upright.shape == ((2, 3, 3) if orientation < 5 else (3, 2, 3))
    top_left, top_right = CORNERS[orientation]
    assert tuple(upright[top_left]) == RED
    assert tuple(upright[top_right]) == GREEN


@pytest.mark.filterwarnings("ignore:Corrupt EXIF")
def test_damaged_exif_is_ignored() -> None:
    data = encode(Image.new("RGB", (2, 1), RED), exif=b"Exif\0\0MM\0*\xff\xff\xff\xff")
    assert pixels(data) == [[RED, RED]]


def test_palette_with_alpha_shows_the_background() -> None:
    image = Image.new("P", (3, 1))
    image.putpalette([*RED, *GREEN, *BLUE])
    for x in range(3):
        image.putpixel((x, 0), x)
    data = encode(image, transparency=bytes([255, 0, 51]))  # opaque, clear, one fifth
    # blue over white at 51/255: 255 * 4/5 = 204 in red and green, 255 in blue
    assert pixels(data) == [[RED, WHITE, (204, 204, 255)]]
    assert pixels(data, background=BLACK) == [[RED, BLACK, (0, 0, 51)]]


def test_palette_with_one_clear_entry() -> None:
    image = Image.new("P", (2, 1))
    image.putpalette([*RED, *GREEN])
    image.putpixel((1, 0), 1)
    assert pixels(encode(image, "GIF", transparency=1), background=BLUE) == [[RED, BLUE]]


def test_grey_alpha_and_rgba() -> None:
    grey = Image.new("LA", (2, 1), (10, 255))
    grey.putpixel((1, 0), (0, 0))
    assert pixels(encode(grey)) == [[(10, 10, 10), WHITE]]
    colour = Image.new("RGBA", (1, 1), (*RED, 51))
    assert pixels(encode(colour)) == [[(255, 204, 204)]]


def test_rgb_with_a_transparent_colour() -> None:
    image = Image.new("RGB", (2, 1), RED)
    image.putpixel((1, 0), GREEN)
    assert pixels(encode(image, transparency=GREEN), background=BLUE) == [[RED, BLUE]]


def test_cmyk_grey_and_bilevel() -> None:
    cmyk = Image.new("CMYK", (2, 1), (0, 0, 0, 0))
    cmyk.putpixel((1, 0), (0, 255, 255, 0))
    assert pixels(encode(cmyk, "TIFF")) == [[WHITE, RED]]
    flat = np.asarray(load_rgb(encode(Image.new("CMYK", (16, 16), (255, 255, 0, 0)), "JPEG"))).astype(int)
    assert np.abs(flat - np.array(BLUE)).max() <= 3
    assert pixels(encode(Image.new("L", (1, 1), 7), "BMP")) == [[(7, 7, 7)]]
    assert pixels(encode(Image.new("1", (1, 1), 1))) == [[WHITE]]


@pytest.mark.parametrize("format", ["GIF", "PNG", "WEBP"])
def test_animated_gives_the_first_frame(format: str) -> None:
    frames = [Image.new("RGB", (4, 4), colour) for colour in (RED, BLUE)]
    options = {"lossless": True} if format == "WEBP" else {}
    data = encode(frames[0], format, save_all=True, append_images=frames[1:], duration=100, **options)
    assert Image.open(io.BytesIO(data)).n_frames == 2  # type: ignore[attr-defined]
    assert {pixel for row in pixels(data) for pixel in row} == {RED}


def test_one_pixel_is_fine() -> None:
    assert pixels(encode(Image.new("RGB", (1, 1), GREEN))) == [[GREEN]]


def problem(data: bytes, **limits: int) -> ImageProblem:
    with pytest.raises(ImageProblem) as caught:
        load_rgb(data, **limits)  # type: ignore[arg-type]
    return caught.value


def test_empty_html_and_other_files() -> None:
    assert problem(b"").reason == "empty"
    assert problem(b"\xef\xbb\xbf\n <!DOCTYPE html><html>404</html>").reason == "html"
    assert problem(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n").reason == "not_an_image"
    unknown = problem(b"hello, world")
    assert unknown.reason == "not_an_image"
    assert "0x" not in unknown.detail  # no memory address: the same input gives the same row


@pytest.mark.parametrize("format", ["JPEG", "PNG", "GIF", "WEBP"])
def test_truncated(format: str) -> None:
    data = encode(gradient(64, 64), format)
    assert problem(data[: len(data) // 2]).reason in ("truncated", "corrupt", "not_an_image")
    if format in ("JPEG", "PNG"):
        assert problem(data[: len(data) // 2]).reason == "truncated"
    assert problem(data[:30]).reason in ("truncated", "corrupt", "not_an_image")


def test_a_flipped_byte_in_compressed_data() -> None:
    data = bytearray(encode(gradient(64, 64)))
    data[60] ^= 0xFF
    assert problem(bytes(data)).reason in ("corrupt", "truncated")


def test_a_bomb_is_refused_by_its_header() -> None:
    # 48 million pixels declared, not one there: the answer cannot come from decoding.
    body = png_chunk(b"IDAT", zlib.compress(b"")) + png_chunk(b"IEND", b"")
    found = problem(png_header(8000, 6000) + body, max_pixels=40_000_000)
    assert (found.reason, "8000x6000" in found.detail) == ("bomb", True)
    assert problem(png_header(60000, 60000) + body).reason == "bomb"  # beyond Pillow's own limit too


def test_limits_are_inclusive() -> None:
    data = encode(Image.new("RGB", (10, 10), RED))
    assert load_rgb(data, max_pixels=100, max_bytes=len(data)).size == (10, 10)
    assert problem(data, max_pixels=99).reason == "bomb"
    assert problem(data, max_bytes=len(data) - 1).reason == "too_large"


def test_floating_point_pixels_have_no_range() -> None:
    assert problem(encode(Image.new("F", (1, 1), 0.5), "TIFF")).reason == "unsupported_mode"
    assert problem(encode(Image.new("I", (1, 1), 70000), "TIFF")).reason == "unsupported_mode"


def test_a_problem_travels_between_processes() -> None:
    # Ray sends exceptions by this means.
    copy = pickle.loads(pickle.dumps(ImageProblem("bomb", "too big")))
    assert (copy.reason, copy.detail, str(copy)) == ("bomb", "too big", "bomb: too big")


def test_pixel_hash_by_hand() -> None:
    image = Image.new("RGB", (2, 1), RED)
    assert pixel_hash(image) == hashlib.sha256(b"2x1:" + bytes([255, 0, 0, 255, 0, 0])).hexdigest()


def test_pixel_hash_sees_pixels_and_shape_only() -> None:
    image = gradient(6, 4)
    assert pixel_hash(load_rgb(encode(image, "PNG"))) == pixel_hash(load_rgb(encode(image, "BMP")))
    flat = Image.new("RGB", (6, 4), RED)
    assert pixel_hash(flat) != pixel_hash(Image.new("RGB", (4, 6), RED))


AWKWARD = {
    "01_truncated.jpg": "truncated",
    "03_html_saved_as.jpg": "html",
    "05_rgba.png": (256, 256),
    "07a_gray16.png": (640, 427),
    "08_exif_rotated.jpg": (640, 428),
    "09_animated.gif": (128, 128),
    "11a_bomb_20000x20000.png": "bomb",
    "13_grayscale.jpg": (640, 427),
    "15_1x1.png": (1, 1),
    "17_png_flipped_byte.png": "corrupt",
    "19_gray_alpha.png": (128, 128),
    "21_header_only.jpg": "truncated",
}


@pytest.mark.shared_data
@pytest.mark.parametrize("name", AWKWARD)
def test_awkward_files_made_by_others(name: str) -> None:
    file = Path(os.environ.get("REPAIR_RAY_SHARED_DATA", "../shared/data")) / "awkward" / name
    if not file.exists():
        pytest.skip(f"{file} is absent (set REPAIR_RAY_SHARED_DATA)")
    expected = AWKWARD[name]
    try:
        found: object = load_rgb(file.read_bytes()).size
    except ImageProblem as error:
        found = error.reason
    assert found == expected
