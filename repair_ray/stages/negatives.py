"""Negatives: each caption of each picture with words put for others, or with words that change places."""

from __future__ import annotations

from collections import defaultdict
from typing import Any, Literal

import pyarrow as pa

from repair_ray import tables
from repair_ray.config import Config
from repair_ray.data.text import text_key
from repair_ray.engines.san.substitute import Made, Truth, substitute, swap
from repair_ray.engines.san.vocabulary import Form
from repair_ray.engines.words import Key, language
from repair_ray.run import CAPTIONS, IMAGES, Recipe, Run
from repair_ray.stages.captioned import captioned
from repair_ray.stages.graph import Progress, Step, quiet, run_graph
from repair_ray.stages.rows import Row, RowStage


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
        return {**self._row(row, row["captions"][0], None), "status": tables.ERROR, "reason": reason}

    def _picture(self, row: Row) -> list[Row]:
        own = [caption["text"] for caption in row["captions"]]
        words = [self._language.words(text) for text in own]
        others = [word for text in row["group_captions"] for word in self._language.words(text)]
        truth = Truth.of([*own, *row["group_captions"]], [*(word for found in words for word in found), *others])
        answers: list[Row] = []
        taken: set[str] = set()
        for caption, found in zip(row["captions"], words, strict=True):
            made = self._made(caption, found, truth)
            # Two captions of a picture may become the same text.
            fresh = [negative for negative in made.negatives if text_key(negative.text) not in taken]
            taken.update(text_key(negative.text) for negative in fresh)
            for negative in fresh:
                changes = "; ".join(f"{word} -> {other}" for word, other in negative.changes)
                kept = {"text": negative.text, "instruction": changes, "status": tables.OK}
                answers.append({**self._row(row, caption, negative.text), **kept})
            if not fresh:
                reason = made.reason or "another caption of the picture gave the same negatives"
                answers.append({**self._row(row, caption, None), "status": tables.REJECTED, "reason": reason})
        return answers

    def _made(self, caption: Row, words: list[Any], truth: Truth) -> Made:
        seed = tables.row_id(self._seed, caption["caption_id"])
        if self._alike is None:
            return swap(caption["text"], words, self._language, truth, n_hard=self._per_caption, seed=seed)
        return substitute(
            caption["text"],
            words,
            self._alike,
            self._forms,
            self._language,
            truth,
            n_hard=self._per_caption,
            n_swap=self._swaps,
            seed=seed,
        )

    @staticmethod
    def _row(row: Row, caption: Row, text: str | None) -> Row:
        identity = tables.row_id("negative", row["image_id"], caption["caption_id"], text)
        ids = {"query_id": row["image_id"], "candidate_id": caption["caption_id"], "direction": "i2t"}
        return {
            **ids,
            "failure_id": identity,
            "ground_truth_id": caption["caption_id"],
            "kind": tables.NEGATIVE,
        }


def read_alike(run: Run, product: str) -> dict[Key, list[Key]]:
    """The words that may stand in for each word, nearest first, of a `confusable` table."""
    found: dict[Key, list[Key]] = defaultdict(list)
    for row in run.read(product).to_pylist():
        if row["status"] == tables.OK:
            found[row["word"], row["pos"]].append((row["other"], row["pos"]))
    return dict(found)


def read_forms(run: Run, product: str) -> dict[Key, dict[Form, int]]:
    """The forms of each word of a `prototypes` table, with how often each was seen."""
    return {
        (row["lemma"], row["pos"]): {(form["tag"], form["text"]): form["count"] for form in row["forms"]}
        for row in run.read(product, ["lemma", "pos", "forms"]).to_pylist()
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
        [Step(WriteNegatives, tables.NEGATIVES.schema, arguments, config.pool.on_cpu())],
        lambda: captioned(run, splits),
        faults=config.faults,
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
