"""The config of a trial: the run's own, with a few rows, a few steps, and one actor a pool."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from repair_ray.config import Config, DataConfig, parse_config
from repair_ray.data.access import image_store
from repair_ray.data.files import is_remote
from repair_ray.data.records import ImageRef, Record
from repair_ray.doctor.data import FirstRows, rows_needed
from repair_ray.doctor.needs import edits, strategies
from repair_ray.stages.sources import SPLITS

STEPS = 2
# Failures of each direction that go on to the models.
BUDGET = 2
# More changes than any caption of the heuristic backend needs: what so few rows confuse lies far apart.
MANY = 99
ONE_ACTOR = {"actors": 1, "max_actors": None}
SCHEMA = pa.schema(
    [
        ("image", pa.struct([("bytes", pa.binary()), ("path", pa.string())])),
        ("captions", pa.list_(pa.string())),
        ("group", pa.string()),
    ]
)


def trial_config(config: Config, first: FirstRows, folder: Path) -> Config:
    """A config whose run takes `first` (or a small world) through every stage that the run has.

    Mined failures all go on, whatever the audit says of them, and edits need not be good: so few rows, and a retriever
    of two steps, say nothing about either. What the stages do with them is the run's own: models, interpreters,
    precision, objective, training workers.
    """
    tree = config.model_dump(mode="json")
    tree |= {"name": "trial", "output": str(folder), "controls": [], "strategy": _strategy(config)}
    tree["data"] |= _data(config, first, folder)
    tree["mining"] |= {"keep": "top_k", "budget": BUDGET, "folds": 0}
    tree["selection"] |= {"audit": False, "min_gain": -2.0, "min_scaffold": -1.0}
    tree["edit"]["candidates"] = 1
    tree["evaluation"]["bootstrap"] = 10
    # A stage goes on with rows that failed, so that each can say why.
    tree["faults"]["max_error_rate"] = 1.0
    for training in filter(None, (tree["base"], tree["training"])):
        training |= {"steps": STEPS, "validate_every": 1, "checkpoint_every": 1, "patience": None}
    for language in filter(None, (tree["language"], tree["audit"]["language"], tree["edit"]["language"])):
        language["endpoint"]["retries"] = min(1, language["endpoint"]["retries"])
        language["pool"] |= ONE_ACTOR
        if language["backend"] == "heuristic":
            language["max_changes"] = MANY
    own = ((tree[section] or {}).get("pool") for section in ("data", "mining", "edit", "selection", "teacher"))
    for pool in filter(None, (tree["pool"], *own)):
        pool |= ONE_ACTOR
    return parse_config(tree, source="the trial's config")


def _strategy(config: Config) -> str:
    """The round's, or that of a control which has more stages."""
    if config.works_on is not None:
        return config.strategy
    if edits(config):
        return config.strategy if config.strategy != "mined" and config.strategy != "vanilla" else "error_agnostic"
    return "mined" if strategies(config) else "vanilla"


def _data(config: Config, first: FirstRows, folder: Path) -> dict[str, Any]:
    rows = rows_needed(config)
    if config.data.world is not None:
        sizes = {split: min(rows, getattr(config.data.world, split)) for split in SPLITS}
        return {"world": config.data.world.model_dump(mode="json") | sizes}
    # Files of their own: a run with data.limit would still read its sources to the end.
    needed = dict.fromkeys(("train", config.mining.split, config.evaluation.split, *first.records))
    written = {split: _write(folder / f"{split}.parquet", config.data, _records(first, split)) for split in needed}
    return {
        "path": None,
        **{split: written.get(split) for split in SPLITS},
        "format": "parquet",
        "image_root": "/",
        "image_column": "image",
        "caption_column": "captions",
        "group_column": "group" if config.data.group_column else None,
        "split_column": "",
        "id_column": None,
        "limit": None,
    }


def _records(first: FirstRows, split: str) -> list[Record]:
    """The first rows of a split; those of another where it begins further on."""
    return first.records.get(split) or max(first.records.values(), key=len)


def _write(path: Path, data: DataConfig, records: list[Record]) -> str:
    rows = [{"image": _image(data, record), "captions": record.captions, "group": record.group} for record in records]
    pq.write_table(pa.Table.from_pylist(rows, SCHEMA), path)
    return str(path)


def _image(data: DataConfig, record: Record) -> dict[str, Any]:
    image = record.image
    if not isinstance(image, ImageRef):
        return {"bytes": image.data, "path": None}
    if image.offset is None and not is_remote(image.uri):
        return {"bytes": None, "path": image.uri}
    return {"bytes": image_store(Path("/"), data).bytes(image.uri, image.offset, image.length), "path": None}
