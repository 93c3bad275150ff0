"""The products of a benchmark's run directory, and small reads that several steps share."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from repair_ray import tables
from repair_ray.config import Config, MultimatchConfig
from repair_ray.run import RunError

ROOT = "multimatch"
ATTRIBUTES = f"{ROOT}/attributes"
COMBINATIONS = f"{ROOT}/combinations"
QUERIES = f"{ROOT}/queries"
FEATURES = f"{ROOT}/features"
GALLERY = f"{ROOT}/gallery"
EXPERTS = f"{ROOT}/experts"
PAIRS = f"{ROOT}/pairs"
SHEET = f"{ROOT}/sheet"
LABELS = f"{ROOT}/labels"
PEOPLE = f"{LABELS}/people"
ANNOTATIONS = f"{ROOT}/annotations"
MATCHES = f"{ROOT}/matches"
BENCHMARK = f"{ROOT}/benchmark"
TRAINED_FEATURES = f"{ROOT}/trained_features"
OVERLAP = f"{ROOT}/overlap"
STATS = "stats.json"


def section_of(config: Config) -> MultimatchConfig:
    """The config's multimatch section. Raises `RunError` where there is none."""
    if config.multimatch is None:
        raise RunError("the config has no section multimatch: name at least multimatch.experts")
    return config.multimatch


def settings_of(**sections: Any) -> dict[str, Any]:
    """Settings of a recipe by their full keys, so that a refusal names them as the config does."""
    return {"multimatch": sections}


def usable(table: pa.Table, **equal: str) -> pa.Table:
    """The rows that are ok and whose columns have these values."""
    chosen = pc.equal(table["status"], tables.OK)
    for column, value in equal.items():
        chosen = pc.and_(chosen, pc.equal(table[column], value))
    return table.filter(chosen)
