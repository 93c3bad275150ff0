"""Strategies that write negative captions: `san` by words that look alike, or its rivals; `negclip` by swaps."""

from __future__ import annotations

import time
from typing import Any

from repair_ray import tables
from repair_ray.config import Config, Strategy
from repair_ray.data.word_pairs import file_digest, read_word_pairs
from repair_ray.engines.retriever import RetrieverSpec, weights_identity
from repair_ray.engines.san.alike import NothingAlike, likenesses
from repair_ray.run import Recipe, Run, RunError
from repair_ray.stages.graph import Progress, quiet
from repair_ray.stages.match import Needs, match_words, word_totals
from repair_ray.stages.negatives import write_negatives
from repair_ray.stages.word_tables import pair_rows, prototype_rows


def negative_captions(
    run: Run,
    config: Config,
    product: str,
    strategy: Strategy,
    spec: RetrieverSpec,
    parents: tuple[str, ...] = (),
    weights: str | None = None,
    progress: Progress = quiet,
) -> None:
    """Make an `edits` table of negative captions of the training splits, within `mining.budget`.

    `negclip` reads captions alone. `san` makes `matches`, `prototypes` and `confusable` beside the product first: with
    the retriever `spec`, but where `negatives.similarity=random` or a list (`negatives.confusable`) needs none.

    Args:
        parents: the products that the retriever's weights come from; or else `weights`, what they are known by.

    Raises:
        RunError: no word matches anything, or none is like another; says how near they came, and which setting to
            change. DataError: a list of pairs that cannot be read.
    """
    splits, place = config.trained_splits, product.rpartition("/")[0]
    if strategy == "negclip":
        write_negatives(run, config, product, splits, progress=progress)
        return
    prefix = f"{place}/" if place else ""
    matches, prototypes, alike = (f"{prefix}{name}" for name in ("matches", "prototypes", "confusable"))
    section = config.negatives
    needs = section.needs
    if needs == "forms":
        match_words(run, config, matches, needs, None, splits, progress=progress)
    else:
        match_words(run, config, matches, needs, spec, splits, parents, weights=weights, progress=progress)
    _prototypes(run, prototypes, matches, needs, spec)
    _confusable(run, config, alike, matches, prototypes, needs, spec)
    write_negatives(run, config, product, splits, prototypes, alike, progress)


def _prototypes(run: Run, product: str, matches: str, needs: Needs, spec: RetrieverSpec) -> None:
    recipe = Recipe({}, (matches,))
    if run.ready(product, recipe):
        return
    start = time.monotonic()
    rows = prototype_rows(word_totals(run, matches), visual=needs == "prototypes")
    facts = {} if needs == "forms" else {"retriever": retriever_facts(spec), "vectors": needs}
    table = tables.to_table(rows, tables.PROTOTYPES.schema)
    run.commit(product, recipe, tables.PROTOTYPES, table, time.monotonic() - start, **facts)


def retriever_facts(spec: RetrieverSpec) -> dict[str, Any]:
    """What identifies a retriever, by the content of its weights."""
    return {"model": spec.model, "weights": weights_identity(spec.weights), "precision": spec.precision}


def _confusable(
    run: Run, config: Config, product: str, matches: str, prototypes: str, needs: Needs, spec: RetrieverSpec
) -> None:
    section = config.negatives
    settings: dict[str, Any] = {"nearest": section.nearest}
    oracle: dict[str, Any]
    if section.confusable is not None:
        oracle = {"kind": "list", "digest": file_digest(section.confusable)}
        settings["confusable"] = oracle["digest"]
    elif section.similarity == "random":
        oracle, settings["seed"] = {"kind": "random"}, config.seed
    else:
        oracle, settings["beta"] = {"kind": section.similarity, **retriever_facts(spec)}, section.beta
    if section.same is not None:
        settings["same"] = file_digest(section.same)
    recipe = Recipe({"negatives": settings}, (prototypes,))
    if run.ready(product, recipe):
        return
    start = time.monotonic()
    totals = word_totals(run, matches)
    try:
        found = likenesses(
            totals,
            section.similarity,
            alpha=section.alpha,
            beta=section.beta,
            nearest=section.nearest,
            seed=config.seed,
            pairs=None if section.confusable is None else read_word_pairs(section.confusable),
            same=[] if section.same is None else read_word_pairs(section.same),
        )
    except NothingAlike as error:
        raise RunError(f"{product}: {error}") from None
    table = tables.to_table(pair_rows(totals, found), tables.CONFUSABLE.schema)
    run.commit(product, recipe, tables.CONFUSABLE, table, time.monotonic() - start, oracle=oracle)
