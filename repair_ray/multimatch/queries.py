"""Distribution-aware queries: attribute statistics of the captions, a sample of combinations, a query for each.

A combination becomes a query by the language model that the config names (the `write_query` task), or by a template
where the backend is `heuristic`. Queries can also be captions of the data itself.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from functools import cache
from typing import Any

import pyarrow as pa

from repair_ray import tables
from repair_ray.config import Config
from repair_ray.data.text import text_key
from repair_ray.engines.tasks import AnswerError, task
from repair_ray.evaluation.attributes import (
    Combination,
    Statistics,
    attribute_statistics,
    choose,
    draw_weighted,
    states,
    text_of,
)
from repair_ray.multimatch.products import ATTRIBUTES, COMBINATIONS, QUERIES, section_of, settings_of, usable
from repair_ray.multimatch.verify import matches_by_groups
from repair_ray.run import CAPTIONS, IMAGES, Recipe, Run, RunError
from repair_ray.sections.multimatch import QueriesConfig
from repair_ray.stages.ask import ask, with_answers
from repair_ray.stages.cases import language_case
from repair_ray.stages.graph import Progress
from repair_ray.stages.questions import limits_of
from repair_ray.stages.rows import Row
from repair_ray.stages.sink import check_errors
from repair_ray.tables import multimatch as benchmark_tables

WRITE = "write_query"
TEMPLATE, CAPTION, MODEL = "template", "caption", "model"
# More combinations than queries, as a model may write two queries alike.
SPARE = 1.25
# Words, values and combinations of fewer pictures are left out of the table of statistics.
LEAST_LISTED = 2


def make_queries(run: Run, config: Config, progress: Progress) -> None:
    """Make the `queries` table (and those before it).

    Raises:
        RunError: fewer combinations or captions than queries, within the limits of expected matches.
    """
    chosen = section_of(config)
    queries, split = chosen.queries, chosen.split

    @cache
    def captions() -> dict[str, list[str]]:
        return _captions_of(run, split)

    @cache
    def statistics() -> Statistics:
        least = math.ceil(queries.min_matches * len(captions()) / _size(config, len(captions())))
        return attribute_statistics(
            list(captions().values()), attributes=queries.attributes, nouns=queries.nouns, least=max(1, least)
        )

    settings = queries.model_dump(mode="json", exclude={"held_out"})
    basis = Recipe(
        settings_of(split=split, queries=settings, gallery={"size": chosen.gallery.size}), (IMAGES, CAPTIONS)
    )
    if queries.source == "written" and not run.ready(ATTRIBUTES, basis):
        start = time.monotonic()
        table = _attributes(statistics())
        run.commit(
            ATTRIBUTES, basis, benchmark_tables.ATTRIBUTES, table, time.monotonic() - start, images=statistics().images
        )
    parents = (ATTRIBUTES,) if queries.source == "written" else ()
    by_model = queries.source == "written" and config.language.asks
    settings = {**basis.settings, "seed": config.seed, "language": {"writes": by_model}}
    drawn = Recipe(settings, (*basis.parents, *parents))
    if not run.ready(COMBINATIONS, drawn):
        start = time.monotonic()
        if queries.source == "written":
            rows = _combinations(statistics(), captions(), config, by_model)
        else:
            rows = _captions(run, config, len(captions()))
        run.commit(
            COMBINATIONS,
            drawn,
            benchmark_tables.ASKED,
            tables.to_table(rows, benchmark_tables.ASKED.schema),
            time.monotonic() - start,
        )
    _finish(run, config, by_model, progress)


def _captions_of(run: Run, split: str) -> dict[str, list[str]]:
    """The captions of each usable picture of a split that has any."""
    found: dict[str, list[str]] = defaultdict(list)
    for row in usable(run.read(CAPTIONS, ["image_id", "position", "text", "split", "status"]), split=split).to_pylist():
        found[row["image_id"]].append(row["text"])
    if not found:
        raise RunError(f"no picture of split {split!r} has a caption: there is nothing to take queries from")
    return dict(sorted(found.items()))


def _size(config: Config, pictures: int) -> int:
    size = section_of(config).gallery.size
    return pictures if size is None else min(size, pictures)


def _attributes(found: Statistics) -> pa.Table:
    rows: list[Row] = []

    def add(kind: str, text: str, images: int) -> None:
        if images >= LEAST_LISTED:
            identity = tables.row_id(kind, text)
            share = images / found.images
            rows.append({"attribute_id": identity, "kind": kind, "text": text, "images": images, "share": share})

    for word, images in found.words.items():
        add("word", word, images)
    for (cls, words), images in found.values.items():
        add(cls, words, images)
    named: dict[str, int] = {}
    for combination, images in found.combinations.items():
        # "sheep" is one and many: the more frequent of two combinations with one text stands for both.
        named[text_of(combination)] = max(images, named.get(text_of(combination), 0))
    for text, images in named.items():
        add("combination", text, images)
    return tables.to_table([{**row, "status": tables.OK} for row in rows], benchmark_tables.ATTRIBUTES.schema)


def _combinations(found: Statistics, captions: dict[str, list[str]], config: Config, by_model: bool) -> list[Row]:
    queries = section_of(config).queries
    number = math.ceil(SPARE * queries.n) if by_model else queries.n
    size = _size(config, found.images)
    chosen = choose(found, number, size, queries.min_matches, queries.max_matches, config.seed)
    if len(chosen) < queries.n:
        raise RunError(_too_few(len(chosen), queries, "attribute combinations"))
    examples = _examples([c for c, _ in chosen], captions, queries.examples, config.seed) if by_model else {}
    return [
        {
            **_named(text_of(combination), TEMPLATE, expected),
            "combination": text_of(combination),
            "captions": examples.get(combination),
        }
        for combination, expected in chosen
    ]


def _named(text: str, source: str, expected: float) -> Row:
    key = text_key(text)
    identity = tables.row_id("query", key)
    return {
        "query_id": identity,
        "text": text,
        "text_key": key,
        "source": source,
        "expected": expected,
        "status": tables.OK,
    }


def _examples(
    chosen: list[Combination], captions: dict[str, list[str]], number: int, seed: int
) -> dict[Combination, list[str]]:
    """For each combination captions of different pictures that state it, in a random order."""
    order = sorted(captions, key=lambda image: tables.row_id("examples", seed, image))
    found: dict[Combination, list[str]] = {combination: [] for combination in chosen}
    for image in order:
        for combination in [c for c in chosen if len(found[c]) < number]:
            telling = next((text for text in captions[image] if states(text, combination)), None)
            if telling is not None:
                found[combination].append(telling)
    return found


def _captions(run: Run, config: Config, pictures: int) -> list[Row]:
    """Captions of the split as queries, each text once; how many pictures they match is known by groups and texts."""
    chosen = section_of(config)
    queries = chosen.queries
    right = matches_by_groups(run, chosen.split)
    rows = usable(run.read(CAPTIONS), split=chosen.split).to_pylist()
    texts: dict[str, Row] = {}
    for row in sorted(rows, key=lambda row: row["caption_id"]):
        expected = len(right[row["text_key"]]) * _size(config, pictures) / pictures
        if queries.min_matches <= expected <= queries.max_matches:
            texts.setdefault(row["text_key"], _named(row["text"], CAPTION, expected))
    found = [texts[key] for key in sorted(texts)]
    if len(found) < queries.n:
        raise RunError(_too_few(len(found), queries, "captions"))
    # The number of pictures is the chance that a caption is met in the domain.
    return [found[place] for place in draw_weighted([row["expected"] for row in found], queries.n, config.seed)]


def _too_few(found: int, queries: QueriesConfig, what: str) -> str:
    return (
        f"only {found} {what} are expected to match {queries.min_matches:g} to {queries.max_matches:g} pictures of the "
        f"gallery, and multimatch.queries.n={queries.n}: ask for fewer, or set min_matches or max_matches wider"
    )


def _finish(run: Run, config: Config, by_model: bool, progress: Progress) -> None:
    queries = section_of(config).queries

    @cache
    def cases() -> pa.Table:
        return tables.to_table([_case(row) for row in run.read(COMBINATIONS).to_pylist()], tables.CASES)

    answers: tuple[str, ...] = ()
    if by_model:
        answers = ask(run, config, config.language, QUERIES, cases, lambda _: WRITE, (COMBINATIONS,), progress=progress)
    settings = settings_of(queries={"n": queries.n, "held_out": queries.held_out})
    recipe = Recipe({**settings, "seed": config.seed}, (COMBINATIONS, *answers))
    if run.ready(QUERIES, recipe):
        return
    start = time.monotonic()
    rows = run.read(COMBINATIONS).to_pylist()
    if by_model:
        answered = with_answers(run, config.language, answers, cases(), lambda _: WRITE)
        rows = _written(rows, answered, config, queries.n)
    good = [row for row in rows if row["status"] == tables.OK]
    held = sorted(good, key=lambda row: tables.row_id("held out", config.seed, row["query_id"]))
    held_out = {row["query_id"] for row in held[: round(queries.held_out * len(good))]}
    rows = [{**row, "held_out": row["query_id"] in held_out} for row in rows]
    table = tables.to_table(rows, benchmark_tables.ASKED.schema)
    check_errors(table, config.faults, QUERIES)
    if not good:
        raise RunError(f"{QUERIES}: no query was written that can be used")
    run.commit(
        QUERIES, recipe, benchmark_tables.ASKED, table, time.monotonic() - start, wanted=queries.n, queries=len(good)
    )


def _case(row: Row) -> Row:
    return {
        "failure_id": row["query_id"],
        "direction": "t2i",
        "query_id": row["query_id"],
        "query_text": row["text"],
        "query_captions": row["captions"] or [],
        "candidate_captions": [],
    }


def _written(rows: list[Row], answered: pa.Table, config: Config, n: int) -> list[Row]:
    """The queries that a model wrote: the first `n` different ones are ok, what is more, or twice, is rejected."""
    of_case = {row["failure_id"]: row for row in answered.to_pylist()}
    limits = limits_of(config.language)
    seen: set[str] = set()
    found: list[Row] = []
    for row in rows:
        case = of_case[row["query_id"]]
        try:
            if case["answer_status"] != tables.OK:
                raise AnswerError(case["answer_reason"] or "nobody was asked")
            text = task(WRITE).read(case["answer"], language_case(case), limits)
        except AnswerError as error:
            found.append({**row, **_unused(row), "status": tables.ERROR, "reason": str(error)})
            continue
        made = {**row, **_named(text, MODEL, row["expected"])}
        problem = "another query has the same text" if made["text_key"] in seen else None
        if problem is None and len(seen) == n:
            problem = "beyond multimatch.queries.n"
        if problem is not None:
            made |= {**_unused(row), "status": tables.REJECTED, "reason": problem}
        else:
            seen.add(made["text_key"])
        found.append(made)
    return found


def _unused(row: Row) -> Row:
    # The id of a text is that of the query that is asked with it.
    return {"query_id": tables.row_id("unused", row["query_id"]), "source": MODEL}


def facts_of(run: Run) -> dict[str, Any]:
    """How many queries were wanted and are there, by where they come from, and how many are held out."""
    rows = run.read(QUERIES).to_pylist()
    good = [row for row in rows if row["status"] == tables.OK]
    manifest = run.manifest(QUERIES) or {}
    return {
        "wanted": manifest["wanted"],
        "n": len(good),
        "held_out": sum(row["held_out"] for row in good),
        "sources": {source: sum(row["source"] == source for row in good) for source in {row["source"] for row in good}},
        "left_out": manifest["reasons"],
    }
