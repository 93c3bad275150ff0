"""Two runs of one config, compared product by product: what was killed and gone on with must be what was not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from safetensors.numpy import load_file

from repair_ray.data.store import ImageStore
from repair_ray.run import Run, read_json


def check_same_tables(plain: Run, other: Run) -> int:
    """Every table row for row, with its counts; returns how many tables there are."""
    compared = 0
    for name, manifest in plain.products():
        if "table" not in manifest:
            continue
        compared += 1
        left, right = _rows(plain, name), _rows(other, name)
        assert len(left) == len(right), name
        for one, another in zip(left, right, strict=True):
            _check_equal(one, another, name)
        found = other.manifest(name) or {}
        assert found["statuses"] == manifest["statuses"]
        assert found["reasons"] == manifest["reasons"]
    return compared


def check_same_training(plain: Path, other: Path) -> None:
    """The same steps, each once, and the same weights."""
    left, right = (read_json(folder / "history.json") or {} for folder in (plain, other))
    steps = [record["step"] for record in right["history"]]
    assert steps == sorted(set(steps)) == [record["step"] for record in left["history"]]
    for key in ("steps", "best_step", "images_encoded", "texts_encoded"):
        assert left[key] == right[key]
    weights = [load_file(folder / "model.safetensors") for folder in (plain, other)]
    for key, value in weights[0].items():
        np.testing.assert_allclose(weights[1][key], value, atol=1e-5, err_msg=f"{plain.parent.name}: {key}")


def _rows(run: Run, name: str) -> list[dict[str, Any]]:
    """Rows in the order of the table, with pictures by content: which shard they lie in is chance."""
    store = ImageStore(str(run.folder))
    table: pa.Table = run.read(name)
    return [_by_content(row, store) for row in table.to_pylist()]


def _by_content(row: dict[str, Any], store: ImageStore) -> dict[str, Any]:
    kept = {key: value for key, value in row.items() if key not in ("uri", "offset", "length")}
    if "source" in row:
        kept["source"] = row["source"].removeprefix(store.root)
    if row.get("uri"):
        kept["picture"] = store.bytes(row["uri"], row["offset"], row["length"])
    if row.get("candidates"):
        kept["candidates"] = [_by_content(candidate, store) for candidate in row["candidates"]]
    return kept


def _check_equal(left: Any, right: Any, where: str) -> None:
    """Equal values; floats to the noise of sums in another order."""
    if isinstance(left, dict):
        assert set(left) == set(right), where
        for key in left:
            _check_equal(left[key], right[key], f"{where}.{key}")
    elif isinstance(left, list):
        assert len(left) == len(right), where
        for one, other in zip(left, right, strict=True):
            _check_equal(one, other, where)
    elif isinstance(left, float):
        assert right == pytest.approx(left, abs=1e-5), where
    else:
        assert right == left, where
