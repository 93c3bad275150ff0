"""Verification by machines: a language backend, or the data's own groups. People: see `people`."""

from __future__ import annotations

import time
from functools import cache
from typing import Any

import pyarrow as pa

from repair_ray import tables
from repair_ray.config import Config, LanguageConfig
from repair_ray.engines.language import Judgement, Verdict
from repair_ray.engines.registry import language_backend
from repair_ray.engines.tasks import AnswerError, task
from repair_ray.evaluation.positives import known_positives
from repair_ray.evaluation.votes import NO, UNSURE, YES
from repair_ray.multimatch.products import LABELS, PAIRS, QUERIES, section_of, usable
from repair_ray.run import CAPTIONS, IMAGES, Recipe, Run
from repair_ray.stages.ask import ask, with_answers
from repair_ray.stages.cases import captions_of_images, language_case
from repair_ray.stages.graph import Progress, Step, run_graph
from repair_ray.stages.pools import cpu_pool
from repair_ray.stages.questions import limits_of, recipe_of
from repair_ray.stages.rows import Row, RowStage
from repair_ray.tables import multimatch as benchmark_tables

VERIFY = "verify_match"
LANGUAGE, GROUPS = "language", "groups"
SAYS: dict[Judgement, str] = {"benign_match": YES, "valid": NO, "bad_ground_truth": UNSURE, "unsure": UNSURE}


class VerifyPairs(RowStage):
    """Labels each pair by the language backend: by a model's answer, or by the picture's captions."""

    def setup(self, language: dict[str, Any]) -> None:
        self._config = LanguageConfig.model_validate(language)
        self._limits = limits_of(self._config)
        self._direct = language_backend(self._config)

    def process(self, rows: list[Row]) -> list[Row]:
        return [self._verify(row) for row in rows]

    def failed(self, row: Row, reason: str) -> Row:
        return {**super().failed(row, reason), "verifier": self._name}

    @property
    def _name(self) -> str:
        return verifier_of(self._config)

    def _verify(self, row: Row) -> Row:
        try:
            verdict = self._verdict(row)
        except AnswerError as error:
            return self.failed(row, str(error))
        return {
            **row,
            "verifier": self._name,
            "label": SAYS[verdict.judgement],
            "confidence": verdict.confidence,
            "explanation": verdict.reason,
            "status": tables.OK,
        }

    def _verdict(self, row: Row) -> Verdict:
        case = language_case(row)
        if self._direct is not None:
            return self._direct.audit(case)
        if row["answer_status"] != tables.OK or row["answer"] is None:
            raise AnswerError(row["answer_reason"] or "nobody was asked")
        verdict: Verdict = task(VERIFY).read(row["answer"], case, self._limits)
        return verdict


def verifier_of(language: LanguageConfig) -> str:
    """The name that a language backend's labels go by."""
    return language.model or language.backend


def language_of(config: Config) -> LanguageConfig:
    """Who verifies, of language backends."""
    return section_of(config).verify.language or config.language


def verify_by_language(run: Run, config: Config, progress: Progress) -> str:
    """Make the `labels` table of the language backend; returns its product."""
    language = language_of(config)
    product = f"{LABELS}/{LANGUAGE}"

    @cache
    def cases() -> pa.Table:
        return _cases(run, section_of(config).split)

    asked = ask(run, config, language, product, cases, lambda _: VERIFY, (PAIRS,), progress=progress)

    def given() -> pa.Table:
        table = with_answers(run, language, asked, cases(), lambda _: VERIFY)
        return table.append_column("pair_id", table["failure_id"])

    run_graph(
        run,
        product,
        Recipe({"language": recipe_of(language)}, (PAIRS, *asked)),
        benchmark_tables.LABELS,
        [
            Step(
                VerifyPairs,
                benchmark_tables.LABELS.schema,
                {"language": language.model_dump(mode="json")},
                *cpu_pool(config),
            )
        ],
        given,
        faults=config.faults,
        cluster=config.cluster,
        progress=progress,
    )
    return product


def _cases(run: Run, split: str) -> pa.Table:
    """`CASES` of the pairs: the query as the caption in question, the picture as its candidate."""
    queries = {row["query_id"]: row["text"] for row in run.read(QUERIES, ["query_id", "text"]).to_pylist()}
    images = {row["image_id"]: row for row in usable(run.read(IMAGES), split=split).to_pylist()}
    captions = captions_of_images(run, split)
    rows = []
    for pair in run.read(PAIRS, ["pair_id", "query_id", "image_id"]).to_pylist():
        image = images[pair["image_id"]]
        rows.append(
            {
                "failure_id": pair["pair_id"],
                "direction": "t2i",
                "query_id": pair["query_id"],
                "candidate_id": pair["image_id"],
                "query_text": queries[pair["query_id"]],
                "query_captions": [],
                "candidate_captions": captions[pair["image_id"]],
                **{f"candidate_{part}": image[part] for part in ("uri", "offset", "length")},
                "candidate_pixels": image["pixel_hash"],
            }
        )
    return tables.to_table(rows, tables.CASES)


def verify_by_groups(run: Run, config: Config) -> str:
    """Make the `labels` table that the data itself gives: a picture matches a caption that it has, or its group."""
    product, split = f"{LABELS}/{GROUPS}", section_of(config).split
    recipe = Recipe({}, (PAIRS, IMAGES, CAPTIONS))
    if run.ready(product, recipe):
        return product
    start = time.monotonic()
    right = matches_by_groups(run, split)
    keys = {row["query_id"]: row["text_key"] for row in run.read(QUERIES, ["query_id", "text_key"]).to_pylist()}
    pairs = run.read(PAIRS, ["pair_id", "query_id", "image_id"])
    labels = [
        YES if image in right.get(keys[query], ()) else NO
        for query, image in zip(pairs["query_id"].to_pylist(), pairs["image_id"].to_pylist(), strict=True)
    ]
    table = pa.table({"pair_id": pairs["pair_id"], "label": pa.array(labels, pa.string())})
    for name, value in (("verifier", GROUPS), ("status", tables.OK)):
        table = table.append_column(name, pa.repeat(pa.scalar(value), len(table)))
    columns = [
        table[field.name] if field.name in table.column_names else pa.nulls(len(table), field.type)
        for field in benchmark_tables.LABELS.schema
    ]
    made = pa.table(columns, schema=benchmark_tables.LABELS.schema)
    run.commit(product, recipe, benchmark_tables.LABELS, made, time.monotonic() - start)
    return product


def matches_by_groups(run: Run, split: str) -> dict[str, frozenset[str]]:
    """Of each caption's text key the pictures of the split that have it, or whose group has."""
    images = usable(run.read(IMAGES, ["image_id", "group_id", "split", "status"]), split=split).to_pylist()
    columns = ["caption_id", "group_id", "text_key", "split", "status"]
    captions = usable(run.read(CAPTIONS, columns), split=split).to_pylist()
    _, of_caption = known_positives(
        [(row["image_id"], row["group_id"]) for row in images],
        [(row["caption_id"], row["group_id"], row["text_key"]) for row in captions],
    )
    return {row["text_key"]: of_caption[row["caption_id"]] for row in captions}
