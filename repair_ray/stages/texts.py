"""Data in, for text-only training: sentences and scored pairs as tables. Read by the driver, without Ray."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator

from repair_ray import tables
from repair_ray.config import StsConfig, TextConfig
from repair_ray.data.access import read_data
from repair_ray.data.records import DataError, Problem
from repair_ray.data.sts import SentencePair, read_sts
from repair_ray.data.text import text_key
from repair_ray.data.texts import Sentence, read_texts
from repair_ray.run import Recipe, Run
from repair_ray.stages.sources import source_digest
from repair_ray.training.texts.job import TEXTS


def pairs_product(split: str) -> str:
    """The product of a split's scored pairs."""
    return f"data/{split}"


def ingest_texts(run: Run, config: TextConfig) -> None:
    """Make the `texts` table. Raises `DataError`: nothing there, unreadable, or fewer than two usable texts."""
    texts = config.texts
    path = texts.path or (texts.data.train or texts.data.path if texts.data else None)
    assert path is not None, "the config has one of them"
    recipe = Recipe({"texts": texts.model_dump(mode="json"), "files": source_digest(path)})
    if run.ready(TEXTS, recipe):
        return
    start = time.monotonic()
    rows: list[dict[str, object]] = []
    used = 0
    for item in _texts(config, path):
        row = _text_row(item, len(rows))
        if row["status"] == tables.OK:
            if texts.limit is not None and used >= texts.limit:
                break
            used += 1
        rows.append(row)
    if used < 2:
        raise DataError(f"{path} holds {used} usable texts; at least two are needed{_reasons(rows)}")
    run.commit(TEXTS, recipe, tables.TEXTS, tables.to_table(rows, tables.TEXTS.schema), time.monotonic() - start)


def _texts(config: TextConfig, path: str) -> Iterator[Sentence | Problem]:
    if config.texts.data is None:
        yield from read_texts(path, config.texts.column)
        return
    for item in read_data(config.texts.data, path, "train"):
        if isinstance(item, Problem):
            yield item
            continue
        for caption in item.captions:
            yield Sentence(caption, item.source, item.group or item.image_id)


def _text_row(item: Sentence | Problem, number: int) -> dict[str, object]:
    identity = tables.row_id(item.source, number)
    if isinstance(item, Problem):
        return {
            "text_id": identity,
            "group_id": identity,
            "source": item.source,
            "status": tables.ERROR,
            "reason": item.reason,
        }
    return {
        "text_id": identity,
        "group_id": identity if item.group is None else tables.row_id("group", item.group),
        "text": item.text,
        "text_key": text_key(item.text),
        "source": item.source,
        "status": tables.OK,
    }


def ingest_pairs(run: Run, config: TextConfig, split: str) -> None:
    """Make the table of a split's scored pairs, where there is one. Raises `DataError`: no usable pair."""
    sts: StsConfig | None = getattr(config, split)
    if sts is None:
        return
    product = pairs_product(split)
    recipe = Recipe({split: sts.model_dump(mode="json"), "files": source_digest(sts.path)})
    if run.ready(product, recipe):
        return
    start = time.monotonic()
    rows = [_pair_row(item, n) for n, item in enumerate(read_sts(sts.path, sts.columns))]
    if not any(row["status"] == tables.OK for row in rows):
        raise DataError(f"no pair of {sts.path} can be used{_reasons(rows)}")
    table = tables.to_table(rows, tables.SENTENCE_PAIRS.schema)
    run.commit(product, recipe, tables.SENTENCE_PAIRS, table, time.monotonic() - start)


def _pair_row(item: SentencePair | Problem, number: int) -> dict[str, object]:
    row: dict[str, object] = {"pair_id": tables.row_id(item.source, number), "source": item.source}
    if isinstance(item, Problem):
        return {**row, "status": tables.ERROR, "reason": item.reason}
    return {
        **row,
        "first": item.first,
        "second": item.second,
        "score": item.score,
        "subset": item.subset,
        "status": tables.OK,
    }


def _reasons(rows: list[dict[str, object]]) -> str:
    bad = [row for row in rows if row["status"] != tables.OK]
    counts = Counter(row["reason"] for row in bad)
    listed = ", ".join(f"{count} {reason}" for reason, count in counts.items())
    return f": {listed} (the first: {bad[0]['source']})" if bad else ""
