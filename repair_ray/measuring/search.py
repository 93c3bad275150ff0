"""Ask a run's retrievers, the base and the repaired one, the same question. Encodes here, without Ray."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from repair_ray import tables
from repair_ray.config import DataConfig
from repair_ray.data.access import image_store
from repair_ray.data.files import read_head
from repair_ray.data.images import ImageProblem, pixel_hash
from repair_ray.data.records import DataError
from repair_ray.data.text import text_key
from repair_ray.engines.searcher import Searcher
from repair_ray.measuring.retrievers import BASE, REPAIRED, load, retrievers_of, run_of
from repair_ray.run import CAPTIONS, IMAGES, Run, RunError
from repair_ray.stages.products import ROUND, result_place
from repair_ray.stages.vectors import read_embeddings
from repair_ray.training.trained import TrainedName

PICTURES = (".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff", ".avif")


def search(
    target: str, query: str, *, k: int = 5, split: str | None = None, round_: int | None = None
) -> dict[str, Any]:
    """The `k` best items of a split, by the base and by the repaired retriever of a run.

    Args:
        target: the run directory.
        query: a text, which is answered by images, or the path of a picture, which is answered by captions.
        round_: the round that has repaired it; None: the one that the run has ended with.
        split: the evaluated split unless another is named, which only the base has embedded.

    Returns:
        `query` (`text` or `picture`), `direction`, `split`, `n` (items searched) and `retrievers`: for each its
        `name`, `model` and `hits`, best first, with rank, score, text, image_id, source, the reference of the image,
        and `right`: the query is one of the image's captions, or has its pixels.

    Raises:
        RunError: there is no run, or it has embedded nothing. DataError: the picture cannot be used.
    """
    run, config = run_of(target)
    split = split or config.evaluation.split
    picture = _picture(query, config.data)
    direction = "t2i" if picture is None else "i2t"
    rows = _Rows(run, split)
    right = rows.saying(query) if picture is None else rows.showing(picture)
    made = []
    place = result_place(run, round_)
    products: dict[TrainedName, str] = {BASE: f"{ROUND}/embeddings", REPAIRED: f"{place}/evaluation"}
    for which, product in products.items():
        manifest = run.manifest(product)
        if manifest is None or split not in manifest["recipe"]["settings"]["splits"]:
            continue
        found = read_embeddings(run, product, tables.IMAGE if picture is None else tables.CAPTION, split)
        (named,) = retrievers_of(target, which, place=place)
        encoder, model = load(named), named.spec.model
        vector = encoder.encode_texts([query]) if picture is None else encoder.encode_images([picture])
        scores, places = Searcher(found.features, model=product).top_k(vector, k, model)
        hits = [
            {"rank": rank, "score": round(float(score), 4), **rows.item(found.ids[place], right)}
            for rank, (score, place) in enumerate(zip(scores[0], places[0], strict=True), start=1)
        ]
        made.append({"name": named.label, "model": model, "hits": hits, "n": len(found.ids)})
    if not made:
        raise RunError(f"{run.folder} has embedded nothing of split {split!r} yet: let the run go on, or name another")
    asked = {"text": query} if picture is None else {"picture": str(Path(query).absolute())}
    return {"query": asked, "direction": direction, "split": split, "n": made[0]["n"], "retrievers": made}


def _picture(query: str, data: DataConfig) -> Any:
    """The picture at a path that is there, or that has a picture's ending; None for a text."""
    named = query.lower().endswith(PICTURES) and " " not in query.rpartition("/")[2].strip()
    if not named and not (len(query) < 1024 and Path(query).is_file()):
        return None
    if not Path(query).is_file():
        raise DataError(f"there is no picture at {query}; to search by these words, end them otherwise")
    store = image_store("/", data)
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
