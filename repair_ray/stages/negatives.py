"""Negatives: each caption of each picture with words put for others, or with words that change places."""

from __future__ import annotations

from collections import defaultdict
from typing import Literal

import pyarrow as pa

from repair_ray import tables
from repair_ray.config import Config
from repair_ray.data.text import text_key
from repair_ray.engines.san.items import negatives_of
from repair_ray.engines.words import language
from repair_ray.run import CAPTIONS, IMAGES, Recipe, Run
from repair_ray.stages.captioned import captioned
from repair_ray.stages.graph import Progress, Step, quiet, run_graph
from repair_ray.stages.pools import cpu_pool
from repair_ray.stages.rows import Row, RowStage
from repair_ray.stages.word_tables import read_alike, read_forms


class WriteNegatives(RowStage):
    """The negative captions of a picture: an `EDITS` row each, and one for a caption that gives none, with why."""

    def setup(
        self,
        folder: str,
        prototypes: str | None,
        confusable: str | None,
        language_name: Literal["en", "de"],
        per_caption: int,
        swaps: int,
        seed: int,
    ) -> None:
        self._language = language(language_name)
        self._per_caption, self._swaps, self._seed = per_caption, swaps, seed
        run = Run(folder)
        self._alike = None if confusable is None else read_alike(run, confusable)
        self._forms = {} if prototypes is None else read_forms(run, prototypes)

    def process(self, rows: list[Row]) -> list[Row]:
        return [made for row in rows for made in self._picture(row)]

    def failed(self, row: Row, reason: str) -> Row:
        return {**negative_row(row, row["captions"][0], None), "status": tables.ERROR, "reason": reason}

    def _picture(self, row: Row) -> list[Row]:
        captions = row["captions"]
        found = negatives_of(
            [caption["text"] for caption in captions],
            [tables.row_id(self._seed, caption["caption_id"]) for caption in captions],
            row["group_captions"],
            self._language,
            self._alike,
            self._forms,
            n_hard=self._per_caption,
            n_swap=self._swaps,
        )
        answers: list[Row] = []
        taken: set[str] = set()
        for caption, made in zip(captions, found, strict=True):
            # Two captions of a picture may become the same text.
            fresh = [negative for negative in made.negatives if text_key(negative.text) not in taken]
            taken.update(text_key(negative.text) for negative in fresh)
            for negative in fresh:
                changes = "; ".join(f"{word} -> {other}" for word, other in negative.changes)
                kept = {"text": negative.text, "instruction": changes, "status": tables.OK}
                answers.append({**negative_row(row, caption, negative.text), **kept})
            if not fresh:
                reason = made.reason or "another caption of the picture gave the same negatives"
                answers.append({**negative_row(row, caption, None), "status": tables.REJECTED, "reason": reason})
        return answers


def negative_row(row: Row, caption: Row, text: str | None) -> Row:
    """The ids of an `EDITS` row: a negative of a caption of a picture (a row of `captioned`), or None for none."""
    return {
        "query_id": row["image_id"],
        "candidate_id": caption["caption_id"],
        "direction": "i2t",
        "failure_id": tables.row_id("negative", row["image_id"], caption["caption_id"], text),
        "ground_truth_id": caption["caption_id"],
        "kind": tables.NEGATIVE,
    }


def write_negatives(
    run: Run,
    config: Config,
    product: str,
    splits: tuple[str, ...],
    prototypes: str | None = None,
    confusable: str | None = None,
    progress: Progress = quiet,
) -> None:
    """Make an `edits` table of negative captions, within `mining.budget`.

    Args:
        prototypes, confusable: the products that say which words stand in, and in which forms; without them words of
            one caption change places.
    """
    section, settings = config.negatives, {"per_caption": config.negatives.per_caption}
    if confusable is not None:
        settings["swaps"] = section.swaps
    parents = [name for name in (prototypes, confusable) if name is not None]
    arguments = {
        "folder": str(run.folder),
        "prototypes": prototypes,
        "confusable": confusable,
        "language_name": section.language,
        "per_caption": section.per_caption,
        "swaps": section.swaps,
        "seed": config.seed,
    }
    run_graph(
        run,
        product,
        Recipe(
            {
                "splits": list(splits),
                "negatives": {**settings, "language": section.language},
                "mining": {"budget": config.mining.budget},
                "seed": config.seed,
            },
            (IMAGES, CAPTIONS, *parents),
        ),
        tables.NEGATIVES,
        [Step(WriteNegatives, tables.NEGATIVES.schema, arguments, *cpu_pool(config))],
        lambda: captioned(run, splits),
        faults=config.faults,
        cluster=config.cluster,
        finish=lambda table: spread(table, config.mining.budget, config.seed),
        progress=progress,
    )


def spread(table: pa.Table, budget: int | None, seed: int) -> pa.Table:
    """Beyond `budget`, negatives stay as rejected rows: first one of each picture, then a second of each, by `seed`."""
    if budget is None:
        return table
    rows = table.to_pylist()
    queues: dict[str, list[tuple[str, Row]]] = defaultdict(list)
    for row in rows:
        if row["status"] == tables.OK:
            queues[row["query_id"]].append((tables.row_id(seed, row["failure_id"]), row))
    order = []
    for queue in queues.values():
        queue.sort(key=lambda item: item[0])
        order += [(turn, draw, row) for turn, (draw, row) in enumerate(queue)]
    order.sort(key=lambda item: item[:2])
    for _, _, row in order[budget:]:
        row["status"], row["reason"] = tables.REJECTED, "beyond mining.budget"
    return tables.to_table(rows, table.schema)
