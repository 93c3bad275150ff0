"""Pictures of a run as small data URIs, and rows of its data tables by id."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable, Mapping
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
SMALL_EDGE = 96

Row = dict[str, Any]


class Pictures:
    """Thumbnails by reference, at most `EDGE` pixels wide and high where nothing else is asked; each is read once."""

    def __init__(self, run: Run, data: DataConfig) -> None:
        self._store = image_store(run.folder, data)
        self._made: dict[tuple[Any, ...], Row] = {}

    def of(self, row: Row, alt: str, edge: int = EDGE) -> Row:
        """`src` (a data URI), `alt` and `problem` for a row with `uri`, `offset` and `length`.

        A picture that cannot be read has no `src`, and a `problem` that says why: a report outlives its pictures.
        """
        reference = (row["uri"], row["offset"], row["length"])
        key = (*reference, edge)
        if key not in self._made:
            try:
                self._made[key] = {"src": data_uri(self._store.rgb(*reference), edge), "problem": None}
            except ImageProblem as problem:
                self._made[key] = {"src": None, "problem": problem.reason.replace("_", " ")}
        return {**self._made[key], "alt": alt}

    def small(self, row: Row) -> str | None:
        """A smaller `src` for long lists; None for a picture that cannot be read."""
        try:
            return data_uri(self._store.rgb(row["uri"], row["offset"], row["length"]), SMALL_EDGE, quality=70)
        except ImageProblem:
            return None

    def open(self, path: str) -> Image.Image:
        """A picture that lies outside the run. Raises ImageProblem."""
        return self._store.rgb(path)


def data_uri(picture: Image.Image, edge: int = EDGE, quality: int = 82) -> str:
    """A thumbnail as `data:`, at most `edge` pixels wide and high; small pictures stay lossless, others become JPEG."""
    small = picture.copy()
    small.thumbnail((edge, edge))
    kind = "png" if max(picture.size) <= LOSSLESS_EDGE else "jpeg"
    buffer = io.BytesIO()
    small.save(buffer, kind, **({"optimize": True} if kind == "png" else {"quality": quality}))
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


def sides(roles: Mapping[str, str], data: DataRows, pictures: Pictures) -> dict[str, Row]:
    """What stands beside each other, by role: a `picture` for the id of an image, the `text` for that of a caption.

    An item that the run's tables do not know is left out.
    """
    images, captions = data.images(roles.values()), data.captions(roles.values())
    described = data.captions_of(images)
    found: dict[str, Row] = {}
    for role, identity in roles.items():
        if identity in captions:
            found[role] = {"text": captions[identity]["text"]}
        elif identity in images:
            first = next((caption["text"] for caption in described[identity]), "no caption")
            found[role] = {"picture": pictures.of(images[identity], f"{role} picture, described as: {first}")}
    return found


def having(table: pa.Table, column: str, values: Iterable[str]) -> pa.Table:
    """The rows whose `column` is one of `values`."""
    return table.filter(pc.is_in(table[column], pa.array(sorted(set(values)), pa.string())))
