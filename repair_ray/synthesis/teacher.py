"""A frozen teacher's features: an embeddings table of its own, made once, and arrays beside a training set."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from repair_ray import tables
from repair_ray.data.text import text_key
from repair_ray.run import CAPTIONS, IMAGES, Recipe, Run, RunError
from repair_ray.stages.sources import source_digest
from repair_ray.training.items import TeacherFeatures


def teacher_features(
    run: Run, product: str, image_of: dict[str, int], caption_of: dict[str, int], *, images: int, captions: int
) -> TeacherFeatures:
    """The teacher's unit features in the order of a training set's items; NaN for items that are not in the tables.

    Args:
        image_of, caption_of: the places of the tables' pictures and captions in the item lists.
        images, captions: how long those lists are.

    Raises:
        RunError: the teacher has features for some pictures, or some captions, but not for all of them.
    """
    table = run.read(product)
    found = []
    for kind, place_of, length in ((tables.IMAGE, image_of, images), (tables.CAPTION, caption_of, captions)):
        rows = table.filter(pc.and_(pc.equal(table["kind"], kind), pc.equal(table["status"], tables.OK)))
        found.append(_placed(rows, kind, place_of, length, product) if len(rows) else None)
    if all(features is None for features in found):
        raise RunError(f"{product}: the teacher has no usable features; its rows say why")
    return TeacherFeatures(*found)


def _placed(rows: pa.Table, kind: str, place_of: dict[str, int], length: int, product: str) -> np.ndarray:
    ids = rows["item_id"].to_pylist()
    missing = sorted(place_of.keys() - set(ids))
    if missing:
        raise RunError(
            f"{product}: the teacher has features for {len(place_of) - len(missing)} of {len(place_of)} {kind}s to "
            f"train on; the first without is {missing[0]}. Give features of all of them, of this run's ids"
        )
    vectors = rows["vector"].combine_chunks()
    sizes = set(pc.list_value_length(vectors).to_pylist())
    if len(sizes) != 1:
        raise RunError(f"{product}: the teacher's {kind} features differ in length: {sorted(sizes)[:5]}")
    features = vectors.flatten().to_numpy(zero_copy_only=False).astype(np.float32).reshape(len(ids), -1)
    norms = np.linalg.norm(features, axis=1, keepdims=True)
    placed = np.full((length, features.shape[1]), np.nan, np.float32)
    rows_of = [(place_of[name], row) for row, name in enumerate(ids) if name in place_of]
    places, sources = (np.array(column, np.int64) for column in zip(*rows_of, strict=True))
    placed[places] = features[sources] / np.maximum(norms[sources], 1e-12)
    return placed


def read_features(run: Run, product: str, path: str, splits: tuple[str, ...]) -> None:
    """Make the teacher's embeddings table from a Parquet file of precomputed features (`teacher.features`).

    Rows are matched by the first of `item_id`, `name` (pictures by file name) and `text` (captions) that they hold.

    Raises:
        RunError: no such file, no usable column, or no row that matches an item of `splits`.
    """
    if not Path(path).exists():
        raise RunError(f"teacher.features: there is no file {path}")
    made = {"teacher": {"features": source_digest(path)}, "splits": list(splits)}
    recipe = Recipe(made, (IMAGES, CAPTIONS))
    if run.ready(product, recipe):
        return
    start = time.monotonic()
    try:
        given = pq.read_table(path)
    except (OSError, pa.ArrowInvalid) as error:
        raise RunError(f"teacher.features: {path} cannot be read as Parquet: {error}") from None
    keys = [name for name in ("item_id", "name", "text") if name in given.column_names]
    if "vector" not in given.column_names or not keys:
        raise RunError(
            f"teacher.features: {path} needs a column vector and one of item_id, name and text; "
            f"it has {', '.join(given.column_names)}"
        )
    wanted = _items(run, splits)
    rows = []
    for number, row in enumerate(given.to_pylist()):
        key = next((name for name in keys if row[name] is not None), None)
        if key is None or row["vector"] is None:
            continue
        if not np.isfinite(row["vector"]).all():
            raise RunError(f"teacher.features: {path}, row {number}: features that are not finite")
        name = text_key(row[key]) if key == "text" else row[key]
        rows += [{**item, "vector": row["vector"], "status": tables.OK} for item in wanted.get((key, name), ())]
    if not rows:
        raise RunError(f"teacher.features: no row of {path} matches a picture or caption of {' and '.join(splits)}")
    doubled = _first_double(row["item_id"] for row in rows)
    if doubled:
        raise RunError(f"teacher.features: {path} has two rows for the item {doubled}")
    run.commit(
        product, recipe, tables.EMBEDDINGS, tables.to_table(rows, tables.EMBEDDINGS.schema), time.monotonic() - start
    )


def _items(run: Run, splits: tuple[str, ...]) -> dict[tuple[str, str], list[dict[str, object]]]:
    """The pictures and captions of some splits by each of the keys that a feature row may name them with."""
    found: dict[tuple[str, str], list[dict[str, object]]] = {}
    kinds = ((IMAGES, tables.IMAGE, "image_id", "name"), (CAPTIONS, tables.CAPTION, "caption_id", "text"))
    for product, kind, identity, other in kinds:
        for row in run.read(product).to_pylist():
            if row["status"] != tables.OK or row["split"] not in splits:
                continue
            item = {"item_id": row[identity], "kind": kind, "split": row["split"]}
            other_key = row["text_key"] if other == "text" else row[other]
            for key in {("item_id", row[identity]), (other, other_key)}:
                found.setdefault(key, []).append(item)
    return found


def _first_double(ids: Iterable[object]) -> object | None:
    seen: set[object] = set()
    for item in ids:
        if item in seen:
            return item
        seen.add(item)
    return None
