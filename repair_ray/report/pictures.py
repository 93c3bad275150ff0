"""Pictures of a run as small data URIs, and rows of its data tables by id."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from PIL import Image

from repair_ray.config import DataConfig
from repair_ray.data.access import image_store
from repair_ray.data.images import ImageProblem
from repair_ray.run import CAPTIONS, IMAGES, Run

EDGE = 176
LOSSLESS_EDGE = 96

Row = dict[str, Any]


class Pictures:
    """Thumbnails by reference, at most `EDGE` pixels wide and high; each is read once."""

    def __init__(self, run: Run, data: DataConfig) -> None:
        self._store = image_store(run.folder, data)
        self._made: dict[tuple[Any, ...], Row] = {}

    def of(self, row: Row, alt: str) -> Row:
        """`src` (a data URI), `alt` and `problem` for a row with `uri`, `offset` and `length`.

        A picture that cannot be read has no `src`, and a `problem` that says why: a report outlives its pictures.
        """
        reference = (row["uri"], row["offset"], row["length"])
        if reference not in self._made:
            try:
                self._made[reference] = {"src": data_uri(self._store.rgb(*reference)), "problem": None}
            except ImageProblem as problem:
                self._made[reference] = {"src": None, "problem": problem.reason.replace("_", " ")}
        return {**self._made[reference], "alt": alt}

    def open(self, path: str) -> Image.Image:
        """A picture that lies outside the run. Raises ImageProblem."""
        return self._store.rgb(path)


def data_uri(picture: Image.Image) -> str:
    """A thumbnail as `data:`; small pictures stay lossless, photographs become JPEG."""
    small = picture.copy()
    small.thumbnail((EDGE, EDGE))
    kind = "png" if max(picture.size) <= LOSSLESS_EDGE else "jpeg"
    buffer = io.BytesIO()
    small.save(buffer, kind, **({"optimize": True} if kind == "png" else {"quality": 82}))
    return f"data:image/{kind};base64,{base64.b64encode(buffer.getvalue()).decode()}"


class DataRows:
    """Rows of the images and captions tables, by id."""

    def __init__(self, run: Run) -> None:
        self._images = run.read(IMAGES)
        self._captions = run.read(CAPTIONS)

    def images(self, ids: Iterable[str]) -> dict[str, Row]:
        return {row["image_id"]: row for row in having(self._images, "image_id", ids).to_pylist()}

    def captions(self, ids: Iterable[str]) -> dict[str, Row]:
        return {row["caption_id"]: row for row in having(self._captions, "caption_id", ids).to_pylist()}

    def captions_of(self, images: Iterable[str]) -> dict[str, list[Row]]:
        """Captions of each image in their order."""
        found: dict[str, list[Row]] = {image: [] for image in images}
        rows = having(self._captions, "image_id", found).to_pylist()
        for row in sorted(rows, key=lambda row: (row["image_id"], row["position"])):
            found[row["image_id"]].append(row)
        return found

    def owners(self) -> dict[str, str]:
        """The image that owns each caption."""
        columns = (self._captions[name].to_pylist() for name in ("caption_id", "image_id"))
        return dict(zip(*columns, strict=True))

    def usable(self, split: str) -> int:
        """How many pictures of a split could be used."""
        fits = pc.and_(pc.equal(self._images["split"], split), pc.equal(self._images["status"], "ok"))
        return int(pc.sum(fits).as_py() or 0)


def having(table: pa.Table, column: str, values: Iterable[str]) -> pa.Table:
    """The rows whose `column` is one of `values`."""
    return table.filter(pc.is_in(table[column], pa.array(sorted(set(values)), pa.string())))
