"""Ask a run's retrievers, the base and the repaired one, the same question. Encodes here, without Ray."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from repair_ray import tables
from repair_ray.config import DataConfig, parse_config
from repair_ray.data.files import read_head
from repair_ray.data.images import ImageProblem
from repair_ray.data.records import DataError
from repair_ray.data.store import ImageStore
from repair_ray.data.text import text_key
from repair_ray.engines.retriever import RetrieverSpec
from repair_ray.engines.searcher import Searcher
from repair_ray.run import Run, RunError, read_json
from repair_ray.stages.ingest import CAPTIONS, IMAGES
from repair_ray.stages.vectors import read_embeddings
from repair_ray.training.job import WEIGHTS

PICTURES = (".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff", ".avif")


def search(run: Run, query: str, *, k: int = 5, split: str | None = None, round_: int = 1) -> dict[str, Any]:
    """The `k` best items of a split, by the base and by the repaired retriever.

    Args:
        query: a text, which is answered by images, or the path of a picture, which is answered by captions.
        split: the evaluated split unless another is named, which only the base has embedded.

    Returns:
        `query` (`text` or `picture`), `direction`, `split`, `n` (items searched) and `retrievers`: for each its
        `name`, `model` and `hits`, best first, with rank, score, text, image_id, source, the reference of the image,
        and `right`: the query is one of the image's captions, or has its pixels.

    Raises:
        RunError: there is no run, or it has embedded nothing. DataError: the picture cannot be used.
    """
    settings = read_json(run.folder / "config.json")
    if settings is None:
        raise RunError(f"there is no run at {run.folder}")
    config = parse_config(settings)
    split = split or config.evaluation.split
    picture = _picture(query, config.data)
    direction = "t2i" if picture is None else "i2t"
    rows = _Rows(run, split)
    right = rows.saying(query) if picture is None else rows.showing(picture)
    made = []
    for name, product in (("base", f"round-{round_}/embeddings"), ("repaired", f"round-{round_}/evaluation")):
        manifest = run.manifest(product)
        if manifest is None or split not in manifest["recipe"]["settings"]["splits"]:
            continue
        found = read_embeddings(run, product, tables.IMAGE if picture is None else tables.CAPTION, split)
        spec = retriever_of(run, product)
        from repair_ray.engines.encoder import Encoder

        encoder = Encoder(spec)
        vector = encoder.encode_texts([query]) if picture is None else encoder.encode_images([picture])
        scores, places = Searcher(found.features, model=product).top_k(vector, k, spec.model)
        hits = [
            {"rank": rank, "score": round(float(score), 4), **rows.item(found.ids[place], right)}
            for rank, (score, place) in enumerate(zip(scores[0], places[0], strict=True), start=1)
        ]
        made.append({"name": name, "model": spec.model, "hits": hits, "n": len(found.ids)})
    if not made:
        raise RunError(f"{run.folder} has embedded nothing of split {split!r} yet: let the run go on, or name another")
    asked = {"text": query} if picture is None else {"picture": str(Path(query).absolute())}
    return {"query": asked, "direction": direction, "split": split, "n": made[0]["n"], "retrievers": made}


def retriever_of(run: Run, embeddings: str) -> RetrieverSpec:
    """The retriever that made an `embeddings` table: weights that were trained in the run are found where it lies now.

    Raises:
        RunError: the table is not finished.
    """
    manifest = run.manifest(embeddings)
    if manifest is None:
        raise RunError(f"{embeddings} does not exist yet in {run.folder}")
    trained = [parent for parent in manifest["recipe"]["parents"] if parent.endswith("/training")]
    weights = str(run.path(trained[0]) / WEIGHTS) if trained else manifest["weights"]
    return RetrieverSpec(manifest["model"], weights, manifest["recipe"]["settings"]["retriever"]["precision"])


def _picture(query: str, data: DataConfig) -> Any:
    """The picture at a path that is there, or that has a picture's ending; None for a text."""
    named = query.lower().endswith(PICTURES) and " " not in query.rpartition("/")[2].strip()
    if not named and not (len(query) < 1024 and Path(query).is_file()):
        return None
    if not Path(query).is_file():
        raise DataError(f"there is no picture at {query}; to search by these words, end them otherwise")
    store = ImageStore("/", background=data.background, max_pixels=data.max_pixels)
    try:
        return store.rgb(str(Path(query).absolute()))
    except ImageProblem as problem:
        raise DataError(f"{query} cannot be used: {problem} (starts with {read_head(query, 8)!r})") from None


class _Rows:
    """The images and captions of one split, by id."""

    def __init__(self, run: Run, split: str) -> None:
        self._run = run
        images, captions = run.read(IMAGES), run.read(CAPTIONS)
        self._images = {row["image_id"]: row for row in _of(images, split)}
        self._captions = {row["caption_id"]: row for row in _of(captions, split)}
        self._first: dict[str, dict[str, Any]] = {}
        for row in self._captions.values():
            known = self._first.setdefault(row["image_id"], row)
            if row["position"] < known["position"]:
                self._first[row["image_id"]] = row

    def saying(self, text: str) -> set[str]:
        """Groups that have this caption."""
        key = text_key(text)
        return {row["group_id"] for row in self._captions.values() if row["text_key"] == key}

    def showing(self, picture: Any) -> set[str]:
        """Groups that have this picture."""
        from repair_ray.data.images import pixel_hash

        key = pixel_hash(picture)
        return {row["group_id"] for row in self._images.values() if row["pixel_hash"] == key}

    def item(self, identity: str, right: set[str]) -> dict[str, Any]:
        """An image with its first caption, or a caption with its image."""
        caption = self._captions.get(identity) or self._first.get(identity)
        image = self._images[identity if caption is None else caption["image_id"]]
        return {
            "image_id": image["image_id"],
            "text": None if caption is None else caption["text"],
            "source": image["source"],
            **{name: image[name] for name in ("uri", "offset", "length")},
            "right": image["group_id"] in right,
        }


def _of(table: Any, split: str) -> list[dict[str, Any]]:
    return list(table.filter(pc.equal(table["split"], split)).to_pylist())
