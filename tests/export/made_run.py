"""A run directory of a few rows with accepted edits of every kind, and pictures in place and inside shards."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from PIL import Image

from repair_ray import tables
from repair_ray.config import Config, parse_config
from repair_ray.run import Recipe, Run, write_json

CONFIG: dict[str, Any] = {
    "name": "made",
    "output": ".",
    "seed": 3,
    "data": {"train": "x.parquet"},
    "retriever": {"model": "tiny-64"},
    "language": {"backend": "openai", "model": "/models/judge-7b", "seed": 5},
    "edit": {"image_editor": "flux2-klein"},
}
COLOURS = {"A": "red", "B": "green", "C": "blue"}
# Caption: its text. C has no caption but the one that A1 says too.
CAPTIONS = {"A1": "a red dot", "A2": "one dot, in red", "B1": "a green dot", "B2": "big green dot", "C1": "A red dot."}
# Failure: direction, query, candidate, ground truth, kind, status.
EDITS: dict[str, tuple[str, str, str, str, str, str]] = {
    "f1": ("i2t", "A", "B1", "A2", "edited", tables.OK),
    "f2": ("t2i", "A1", "B", "A", "edited", tables.OK),
    "f3": ("t2i", "A1", "C", "A", "edited", tables.OK),
    "f4": ("i2t", "B", "A1", "B1", "paired", tables.OK),
    "f5": ("i2t", "B", "A2", "B1", "edited", tables.REJECTED),
}


def encoded(colour: str, kind: str = "png") -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (8, 8), colour).save(buffer, kind)
    return buffer.getvalue()


def make_run(folder: Path, edits: dict[str, tuple[str, str, str, str, str, str]] = EDITS) -> tuple[Run, Config]:
    """A is a JPEG file in place, B and C lie in one shard; the edited pictures of f2 and f3 in another one."""
    run = Run(folder / "made")
    run.folder.mkdir()
    config = parse_config(CONFIG)
    write_json(run.folder / "config.json", config.model_dump(mode="json"))
    (folder / "a.jpg").write_bytes(encoded("red", "jpeg"))
    places: dict[str, tuple[str, int | None, int | None]] = {"A": (str(folder / "a.jpg"), None, None)}
    for shard, names in (("source.tar", ("B", "C")), ("edit.tar", ("f2-0", "f2", "f3"))):
        content = b""
        for number, name in enumerate(names):
            data = encoded(COLOURS.get(name, f"#10{number}000"))
            places[name] = (shard, len(content), len(data))
            content += data
        (run.folder / shard).write_bytes(content)
    ok = {"split": "train", "status": tables.OK}
    images = [
        {"image_id": i, "group_id": f"g{i}", **_ref(places[i]), "source": f"/home/me/x.parquet:{n}", **ok}
        for n, i in enumerate(COLOURS)
    ]
    captions = [
        {
            "caption_id": i,
            "image_id": i[0],
            "group_id": f"g{i[0]}",
            "text": text,
            "text_key": text,
            "position": int(i[1]),
            **ok,
        }
        for i, text in CAPTIONS.items()
    ]
    _commit(run, "data/images", tables.IMAGES, images)
    _commit(run, "data/captions", tables.CAPTIONS, captions)
    failures, verdicts, rows = [], [], []
    for identity, (direction, query, candidate, truth, kind, status) in edits.items():
        row = {"failure_id": identity, "direction": direction, "query_id": query, "candidate_id": candidate}
        found = {"ground_truth_id": truth, "rank": 1, "score": 0.5, "ground_truth_score": 0.25}
        failures.append({**row, **found, "status": tables.OK})
        wrong = [{"type": "attribute", "query": "red", "candidate": "big green"}]
        judged = {"judgement": "valid", "confidence": 0.75, "judge": "judge-7b", "mismatches": wrong}
        verdicts.append({**row, **judged, "status": tables.OK})
        edit: dict[str, Any] = {**row, "ground_truth_id": truth, "kind": kind, "status": status, "align": 0.5}
        if status != tables.OK:
            edit["reason"] = "too far"
        elif kind == "edited" and direction == "i2t":
            edit |= {"text": "a red\tdot, not green", "instruction": "say red"}
        elif kind == "edited":
            first = [_ref(places["f2-0"])] if identity == "f2" else []
            edit |= {**_ref(places[identity]), "candidates": [*first, _ref(places[identity])]}
        rows.append(edit)
    _commit(run, "round-1/failures", tables.FAILURES, failures)
    _commit(run, "round-1/verdicts", tables.VERDICTS, verdicts)
    _commit(run, "round-1/edits", tables.EDITS, rows)
    return run, config


def _ref(place: tuple[str, int | None, int | None]) -> dict[str, Any]:
    return dict(zip(("uri", "offset", "length"), place, strict=True))


def _commit(run: Run, product: str, kind: tables.Table, rows: list[dict[str, Any]]) -> None:
    run.ready(product, Recipe({}))
    run.commit(product, Recipe({}), kind, tables.to_table(rows, kind.schema), 0.0)
