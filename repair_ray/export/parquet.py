"""Pairs as a Hugging Face data set: Parquet files whose `huggingface` metadata tell `datasets` what is a picture."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from repair_ray.export.pairs import HardPair, Picture
from repair_ray.export.pictures import Read

# Rows of a row group, as the hub's viewer likes them for pictures; fewer where the pictures are large.
GROUP_ROWS = 100
GROUP_BYTES = 64 * 2**20

_IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
_TYPES: dict[str, pa.DataType] = {
    "image": _IMAGE,
    "caption": pa.string(),
    "neg_image": _IMAGE,
    "neg_caption": pa.string(),
    **dict.fromkeys(("pair_id", "direction", "kind"), pa.string()),
    **dict.fromkeys(("image_id", "caption_id", "neg_image_id", "neg_caption_id", "group_id"), pa.string()),
    "ground_truth_id": pa.string(),
    **dict.fromkeys(("synthetic_image", "synthetic_caption"), pa.bool_()),
    **dict.fromkeys(("source", "neg_source"), pa.string()),
    "rank": pa.int32(),
    **dict.fromkeys(("score", "ground_truth_score", "align_before", "align", "scaffold"), pa.float32()),
    **dict.fromkeys(("judge", "judgement"), pa.string()),
    "confidence": pa.float32(),
    **dict.fromkeys(("explanation", "mismatches", "instruction"), pa.string()),
    **dict.fromkeys(("editor", "model", "instructed_by", "prompt_version"), pa.string()),
    "seed": pa.int64(),
    **dict.fromkeys(("digital_source_type", "tool"), pa.string()),
}
_NAMES = {pa.float32(): "float32"}


def schema() -> pa.Schema:
    """The columns, with the metadata that `datasets.load_dataset` reads features from."""
    features = {
        # Arrow's names of these types are those of `datasets` too, but for one.
        name: {"_type": "Image"} if kind == _IMAGE else {"dtype": _NAMES.get(kind, str(kind)), "_type": "Value"}
        for name, kind in _TYPES.items()
    }
    return pa.schema(_TYPES, metadata={"huggingface": json.dumps({"info": {"features": features}})})


def write_parquet(pairs: list[HardPair], read: Read, folder: Path, split: str, max_bytes: int) -> dict[str, int]:
    """Write `data/<split>-00000-of-00001.parquet`, ... each of about `max_bytes` of pictures."""
    (folder / "data").mkdir()
    parts: list[Path] = []
    writer: pq.ParquetWriter | None = None
    written = 0
    for group, size in _groups(pairs, read):
        if writer is None or written + size > max_bytes:
            if writer is not None:
                writer.close()
            parts.append(folder / "data" / f"{split}-{len(parts):05d}")
            writer, written = pq.ParquetWriter(parts[-1], schema()), 0
        writer.write_table(pa.Table.from_pylist(group, schema()))
        written += size
    if writer is not None:
        writer.close()
    for part in parts:
        part.rename(part.with_name(f"{part.name}-of-{len(parts):05d}.parquet"))
    return {"pairs": len(pairs), "files": len(parts)}


def _groups(pairs: list[HardPair], read: Read) -> Iterator[tuple[list[dict[str, Any]], int]]:
    """Rows of one row group at a time, with the bytes of their pictures."""
    rows: list[dict[str, Any]] = []
    size = 0
    for pair in pairs:
        row = pair.record()
        row["mismatches"] = json.dumps(row["mismatches"] or [], ensure_ascii=False)
        row |= {"image": _image(pair.image, read), "neg_image": _image(pair.neg_image, read)}
        rows.append(row)
        size += len(row["image"]["bytes"]) + len(row["neg_image"]["bytes"])
        if len(rows) == GROUP_ROWS or size > GROUP_BYTES:
            yield rows, size
            rows, size = [], 0
    if rows:
        yield rows, size


def _image(picture: Picture, read: Read) -> dict[str, Any]:
    content, name = read(picture)
    return {"bytes": content, "path": name}
