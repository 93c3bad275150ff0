"""Verification by people: one blind sheet for all annotators, as CSV files or on the review page.

A run has one sheet: all pairs that are to be verified, or a random sample of them, in an order that tells nothing. It
shows the query and the picture; neither who proposed the pair nor what a machine said of it.
"""

from __future__ import annotations

import csv
import hashlib
import json
import time
from collections.abc import Sequence
from pathlib import Path

from PIL import Image

from repair_ray import tables
from repair_ray.config import Config
from repair_ray.data.access import image_store
from repair_ray.data.records import DataError
from repair_ray.data.sheet_pictures import picture_place
from repair_ray.evaluation.labels import ANNOTATOR, LABEL, read_labels, safe_cell
from repair_ray.evaluation.votes import LABELS as WORDS
from repair_ray.evaluation.votes import NO, UNSURE, YES, check_same_sheet
from repair_ray.multimatch.products import ANNOTATIONS, PAIRS, PEOPLE, QUERIES, SHEET, section_of, usable
from repair_ray.review.annotations import check_annotator, put_all, read_all
from repair_ray.review.task import Key, Shown
from repair_ray.run import IMAGES, Recipe, Run, RunError
from repair_ray.stages.rows import Row
from repair_ray.tables import multimatch as benchmark_tables

PAIR_ID = "pair_id"
COLUMNS = (PAIR_ID, "query", "image", LABEL, ANNOTATOR)


def sheet_of(run: Run, n: int | None = None, seed: int | None = None) -> list[Row]:
    """The pairs of the run's sheet in its order; made where there is none, of `n` random pairs, or of all.

    A simple random sample, so that agreement over it estimates agreement over all pairs.

    Raises:
        RunError: there are no pairs yet, or the sheet that is there is of another `n` or seed.
    """
    if run.manifest(PAIRS) is None:
        raise RunError(f"{run.folder} has no candidates to verify yet: run multimatch build first")
    made = run.manifest(SHEET)
    if made is None:
        _make_sheet(run, n, seed or 0)
    elif made["recipe"]["parents"][PAIRS] != (run.manifest(PAIRS) or {})["fingerprint"]:
        raise RunError(f"{SHEET} is of candidates that were made anew since: multimatch build with --redo {SHEET}")
    settings = (run.manifest(SHEET) or {})["recipe"]["settings"]
    asked = {name: value for name, value in (("n", n), ("seed", seed)) if value is not None}
    if made is not None and any(settings[name] != value for name, value in asked.items()):
        raise RunError(
            f"the sheet of {run.folder} has {settings['n'] or 'all'} pairs (seed {settings['seed']}), and annotators "
            "must label the same one: leave --n and --seed out, or make another one possible by multimatch build with "
            f"--redo {SHEET}"
        )
    return sorted(run.read(SHEET).to_pylist(), key=lambda row: _order(settings["seed"], row[PAIR_ID]))


def _make_sheet(run: Run, n: int | None, seed: int) -> None:
    recipe = Recipe({"n": n, "seed": seed}, (PAIRS,))
    run.ready(SHEET, recipe)
    start = time.monotonic()
    pairs = run.read(PAIRS)
    ordered = sorted(pairs[PAIR_ID].to_pylist(), key=lambda pair: _order(seed, pair))
    chosen = set(ordered[: n or len(ordered)])
    table = pairs.filter([pair in chosen for pair in pairs[PAIR_ID].to_pylist()])
    run.commit(SHEET, recipe, benchmark_tables.PAIRS, table, time.monotonic() - start)


def _order(seed: int, pair: str) -> str:
    return tables.row_id("sheet", seed, pair)


def write_sheet(run: Run, config: Config, out: Path, annotator: str, n: int | None, seed: int | None) -> int:
    """Write the run's sheet as CSV for one annotator; returns how many pairs are in it.

    Pictures that lie inside shards are copied into a folder beside it (`<name>_images`).

    Raises:
        RunError: as `sheet_of`. DataError: the file exists already.
    """
    check_annotator(annotator)
    rows = sheet_of(run, n, seed)
    queries, images = _queries(run), _images(run, section_of(config).split)
    store = image_store(run.folder, config.data)
    folder = out.with_name(f"{out.stem}_images")
    try:
        with out.open("x", encoding="utf-8-sig", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(COLUMNS)
            for row in rows:
                image = images[row["image_id"]]
                reference = (image["uri"], image["offset"], image["length"])
                shown = picture_place(store, *reference, (image["pixel_hash"] or row["image_id"])[:16], folder)
                writer.writerow([row[PAIR_ID], safe_cell(queries[row["query_id"]]), safe_cell(shown), "", annotator])
    except FileExistsError:
        raise DataError(f"{out} exists, and may hold labels; name another file") from None
    return len(rows)


def take_labels(run: Run, paths: Sequence[Path]) -> int:
    """Take the labels of filled-in sheets into the run's annotations; returns how many were new or changed.

    Raises:
        DataError: as `read_labels`, or a sheet that is not this run's. RunError: a bad annotator's name.
    """
    sheet = {row[PAIR_ID] for row in sheet_of(run)}
    found = read_labels(paths, PAIR_ID, WORDS)
    check_same_sheet(found.listed, sheet)
    for annotator in found.by_annotator:
        check_annotator(annotator)
    return put_all(run.path(ANNOTATIONS), found.by_annotator, WORDS)


def settle_people(run: Run) -> dict[str, str]:
    """Bring the `labels` tables of people up to what they have said; returns the product of each annotator.

    A table whose annotator has said more is made anew, and with it all that was made from it.

    Raises:
        RunError: annotations that cannot be read.
    """
    said = read_all(run.path(ANNOTATIONS), WORDS)
    products = {annotator: f"{PEOPLE}/{annotator}" for annotator in said}
    for product, _ in list(run.products()):
        if product.startswith(f"{PEOPLE}/") and product not in products.values():
            run.redo(product)
    if not said:
        return {}
    pairs = set(run.read(PAIRS, [PAIR_ID])[PAIR_ID].to_pylist())
    for annotator, labels in said.items():
        product = products[annotator]
        # Of earlier candidates there may be more: an id is that of its query and picture.
        own = {pair: label for pair, label in labels.items() if pair in pairs}
        digest = hashlib.sha256(json.dumps(sorted(own.items())).encode()).hexdigest()[:16]
        made = run.manifest(product)
        if made is not None and made["recipe"]["settings"] != {"labels": digest}:
            run.redo(product)
        recipe = Recipe({"labels": digest}, (PAIRS,))
        if run.ready(product, recipe):
            continue
        rows: list[Row] = [
            {PAIR_ID: pair, "verifier": annotator, "label": label, "status": tables.OK} for pair, label in own.items()
        ]
        table = tables.to_table(rows, benchmark_tables.LABELS.schema)
        run.commit(product, recipe, benchmark_tables.LABELS, table, 0.0, of_other_pairs=len(labels) - len(own))
    return products


class PairReview:
    """The run's sheet as a task of the review page."""

    question = "Does the picture match the query? All that the query says must hold."
    keys = (Key("y", YES, "yes"), Key("n", NO, "no"), Key("u", UNSURE, "unsure"))

    def __init__(self, run: Run, config: Config, n: int | None = None, seed: int | None = None) -> None:
        """Raises `RunError` as `sheet_of`."""
        self._rows = {row[PAIR_ID]: row for row in sheet_of(run, n, seed)}
        self.items = tuple(self._rows)
        self._texts = _queries(run)
        self._images = _images(run, section_of(config).split)
        self._store = image_store(run.folder, config.data)

    def shown(self, item: str) -> Shown:
        """The query, and one picture beside it."""
        return Shown(self._texts[self._rows[item]["query_id"]])

    def picture(self, item: str, number: int) -> Image.Image:
        """The pair's picture. Raises `ImageProblem`."""
        image = self._images[self._rows[item]["image_id"]]
        return self._store.rgb(image["uri"], image["offset"], image["length"], image["sha256"])


def _queries(run: Run) -> dict[str, str]:
    return {row["query_id"]: row["text"] for row in usable(run.read(QUERIES)).to_pylist()}


def _images(run: Run, split: str) -> dict[str, Row]:
    return {row["image_id"]: row for row in usable(run.read(IMAGES), split=split).to_pylist()}
