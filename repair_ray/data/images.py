"""Encoded bytes to upright RGB pixels: the same pixels for every consumer, or a reason why not."""

from __future__ import annotations

import hashlib
import io

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

# Raster formats that Pillow decodes by itself. Never EPS or WMF: these start other programs.
_WANTED = ("JPEG", "PNG", "GIF", "WEBP", "BMP", "DIB", "TIFF", "JPEG2000", "AVIF", "PPM", "TGA", "QOI")
FULL_16_BIT = 65535

Image.init()
FORMATS = tuple(name for name in _WANTED if name in Image.OPEN)  # a build may lack some


class ImageProblem(Exception):
    """An image that cannot be used. `reason` is one word to count by, `detail` says more; both are deterministic."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(reason, detail)
        self.reason = reason
        self.detail = detail

    def __str__(self) -> str:
        return f"{self.reason}: {self.detail}"


def load_rgb(
    data: bytes,
    *,
    background: tuple[int, int, int] = (255, 255, 255),
    max_pixels: int = 64_000_000,
    max_bytes: int = 64 * 2**20,
) -> Image.Image:
    """Decode `data` to a PIL RGB image: first frame, upright by EXIF, transparency laid over `background`.

    16-bit grey is scaled to 8 bits (0..65535 -> 0..255, rounded), where PIL's own convert clips it (ours). The
    declared size is checked before any pixel is decoded. Raises ImageProblem with reason empty, too_large, html,
    not_an_image, bomb, truncated, corrupt or unsupported_mode.
    """
    if not data:
        raise ImageProblem("empty", "0 bytes")
    if len(data) > max_bytes:
        raise ImageProblem("too_large", f"{len(data)} bytes, the limit is {max_bytes}")
    image = _open(data)
    width, height = image.size
    if width * height > max_pixels:
        raise ImageProblem("bomb", f"declares {width}x{height} pixels, the limit is {max_pixels}")
    try:
        image.load()
    except MemoryError:
        raise ImageProblem("too_large", f"no memory for {width}x{height} pixels") from None
    except Exception as error:  # decoders raise nearly anything on damaged data
        reason = "truncated" if "truncated" in str(error).lower() else "corrupt"
        raise ImageProblem(reason, f"{image.format} of {len(data)} bytes: {error}") from None
    try:
        return _flatten(_upright(image), background)
    except ImageProblem:
        raise
    except Exception as error:
        raise ImageProblem("unsupported_mode", f"{image.format} in mode {image.mode}: {error}") from None


def pixel_hash(image: Image.Image) -> str:
    """sha256 hex over width, height and the RGB pixels of an upright image: equal for equal pictures of any format."""
    rgb = image if image.mode == "RGB" else image.convert("RGB")
    digest = hashlib.sha256(f"{rgb.width}x{rgb.height}:".encode())
    digest.update(rgb.tobytes())
    return digest.hexdigest()


def _open(data: bytes) -> Image.Image:
    try:
        return Image.open(io.BytesIO(data), formats=FORMATS)
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise ImageProblem("bomb", str(error)) from None
    except UnidentifiedImageError:
        # Pillow's message holds a memory address, so it is of no use in a table.
        head = data[:512].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
        if head.startswith((b"<!doctype html", b"<html", b"<head")):
            raise ImageProblem("html", "a web page saved under an image's name") from None
        raise ImageProblem("not_an_image", f"none of {', '.join(FORMATS)}; starts with {data[:8]!r}") from None
    except Exception as error:
        reason = "truncated" if "truncated" in str(error).lower() else "corrupt"
        raise ImageProblem(reason, f"{len(data)} bytes: {error}") from None


def _upright(image: Image.Image) -> Image.Image:
    try:
        return ImageOps.exif_transpose(image)
    except Exception:  # a damaged EXIF block says nothing about the pixels
        return image


def _flatten(image: Image.Image, background: tuple[int, int, int]) -> Image.Image:
    if image.mode.startswith("I"):
        return _from_deep_grey(image, background)
    if image.mode == "F":
        raise ImageProblem("unsupported_mode", "floating-point pixels have no known range; save as 8 or 16 bit")
    if image.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in image.info:
        rgba = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", rgba.size, (*background, 255)), rgba).convert("RGB")
    return image if image.mode == "RGB" else image.convert("RGB")


def _from_deep_grey(image: Image.Image, background: tuple[int, int, int]) -> Image.Image:
    """Modes I;16* and I -> RGB. Mode I is taken as 16-bit grey, which is what PNG and PPM files hold there."""
    grey = np.asarray(image).astype(np.int64)
    if grey.min() < 0 or grey.max() > FULL_16_BIT:
        raise ImageProblem("unsupported_mode", f"grey values {grey.min()}..{grey.max()} exceed 16 bits")
    rgb = np.repeat(((grey + 128) // 257).astype(np.uint8)[:, :, None], 3, axis=2)
    clear = image.info.get("transparency")
    if isinstance(clear, int):
        rgb[grey == clear] = background
    return Image.fromarray(rgb)
