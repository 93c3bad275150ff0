"""README.md of an export: what it holds, how it was made, and what of it is synthetic."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jinja2

from repair_ray.config import Config

TEMPLATES = Path(__file__).parent / "templates"
CARD = "README.md"
# The hub's size categories: below this many rows, that name.
_SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M"))


def write_card(folder: Path, config: Config, facts: dict[str, Any], columns: Iterable[str]) -> None:
    """Write a data set's card; `facts` are those of `export_pairs`, `columns` the names in `HardPair.record()`."""
    size = next((name for limit, name in _SIZES if facts["written"]["pairs"] < limit), "1M<n<10M")
    values = {"facts": facts, "columns": list(columns), "size": size, "split": config.mining.split}
    _write(folder, "dataset_card.md.j2", {**values, "model": config.retriever.model})


def write_model_card(folder: Path, config: Config, facts: dict[str, Any]) -> None:
    """Write a model's card; `facts` are those of `export_model`."""
    _write(folder, "model_card.md.j2", {"facts": facts, "model": config.retriever.model})


def _write(folder: Path, template: str, values: dict[str, Any]) -> None:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,
        keep_trailing_newline=True,
    )
    # JSON is YAML: a name of the user's cannot end the header or become a key.
    environment.filters["quoted"] = lambda value: json.dumps(value, ensure_ascii=False)
    (folder / CARD).write_text(environment.get_template(template).render(values), encoding="utf-8")
