"""Negatives of clips and the stress set of clips, as products of a run; see `job`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from repair_ray import tables
from repair_ray.config import NegativesConfig
from repair_ray.data.clips import Clip, ClipSet
from repair_ray.data.text import text_key
from repair_ray.data.word_pairs import file_digest, read_word_pairs
from repair_ray.engines.clip_tower import WEIGHTS, ClipRetriever
from repair_ray.engines.retriever import weights_identity
from repair_ray.engines.san.alike import NothingAlike, alike_of, likenesses
from repair_ray.engines.san.items import negatives_of
from repair_ray.engines.san.totals import WordMatcher, WordTotals
from repair_ray.engines.words import language
from repair_ray.evaluation import stress
from repair_ray.run import Recipe, Run, RunError
from repair_ray.sections.clips import ClipsConfig
from repair_ray.stages.word_tables import pair_rows, prototype_rows, read_alike, read_forms

MODEL = "clip features"


def caption_id(clip: str, number: int) -> str:
    """The id of a clip's caption of that number."""
    return tables.row_id("caption", clip, number)


def identity_of(run: Run, training: str) -> dict[str, Any]:
    """What identifies a retriever of the run, by the content of its weights."""
    return {"model": MODEL, "weights": weights_identity(str(run.path(training) / WEIGHTS))}


def clip_negatives(
    run: Run,
    clips: ClipSet,
    place: str,
    section: NegativesConfig,
    seed: int,
    base: ClipRetriever,
    training: str,
    data: str,
) -> str:
    """Make prototypes, confusable words and negatives (an `edits` table) of the training split; returns its name.

    Raises:
        RunError: no word matches, or none is like another.
    """
    needs_base = section.confusable is None and section.similarity != "random"
    prototypes, alike, negatives = (f"{place}/{name}" for name in ("prototypes", "confusable", "negatives"))
    split = clips.of("train")
    settings: dict[str, Any] = {"language": section.language}
    if needs_base:
        settings |= {"prompt": section.prompt, "alpha": section.alpha}
    recipe = Recipe({"negatives": settings}, (data, training) if needs_base else (data,))
    totals: WordTotals | None = None
    if not run.ready(prototypes, recipe):
        start = time.monotonic()
        totals = matched(split, section, base if needs_base else None)
        rows = prototype_rows(totals, visual=needs_base and section.similarity == "visual")
        run.commit(prototypes, recipe, tables.PROTOTYPES, _table(rows, tables.PROTOTYPES), time.monotonic() - start)
    settings, oracle = _said_by(run, section, training, seed)
    recipe = Recipe({"negatives": settings}, (prototypes,))
    if not run.ready(alike, recipe):
        start = time.monotonic()
        totals = totals or matched(split, section, base if needs_base else None)
        pairs = None if section.confusable is None else read_word_pairs(section.confusable)
        try:
            found = likenesses(
                totals,
                section.similarity,
                alpha=section.alpha,
                beta=section.beta,
                nearest=section.nearest,
                seed=seed,
                pairs=pairs,
                same=[] if section.same is None else read_word_pairs(section.same),
            )
        except NothingAlike as error:
            raise RunError(f"{alike}: {error}") from None
        table = _table(pair_rows(totals, found), tables.CONFUSABLE)
        run.commit(alike, recipe, tables.CONFUSABLE, table, time.monotonic() - start, oracle=oracle)
    settings = {"per_caption": section.per_caption, "swaps": section.swaps, "language": section.language}
    recipe = Recipe({"negatives": settings, "seed": seed}, (data, prototypes, alike))
    if not run.ready(negatives, recipe):
        start = time.monotonic()
        table = _table(_negative_rows(run, clips.of("train"), section, seed, prototypes, alike), tables.EDITS)
        run.commit(negatives, recipe, tables.EDITS, table, time.monotonic() - start)
    if not (run.manifest(negatives) or {})["statuses"].get(tables.OK):
        raise RunError(f"{negatives}: no caption has a negative: {(run.manifest(negatives) or {})['reasons']}")
    return negatives


def matched(clips: Sequence[Clip], section: NegativesConfig, retriever: ClipRetriever | None) -> WordTotals:
    """The words of clips, with prototypes and text vectors where there is a retriever."""
    words, captions = language(section.language), [clip.captions for clip in clips]
    if retriever is None:
        return WordMatcher(words).match(captions)[0]
    matcher = WordMatcher(words, retriever.encode_texts, section.prompt, section.alpha)
    return matcher.match(captions, retriever.encode_tokens([clip.features for clip in clips]))[0]


def _said_by(run: Run, section: NegativesConfig, training: str, seed: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """The settings that choose confusable words, and what identifies who says which they are."""
    settings: dict[str, Any] = {"nearest": section.nearest, "similarity": section.similarity}
    if section.same is not None:
        settings["same"] = file_digest(section.same)
    if section.confusable is not None:
        digest = file_digest(section.confusable)
        return settings | {"confusable": digest}, {"kind": "list", "digest": digest}
    if section.similarity == "random":
        return settings | {"seed": seed}, {"kind": "random"}
    return settings | {"beta": section.beta}, {"kind": section.similarity, **identity_of(run, training)}


def _table(rows: list[dict[str, Any]], kind: tables.Table) -> Any:
    return tables.to_table(rows, kind.schema)


def _negative_rows(
    run: Run, clips: Sequence[Clip], section: NegativesConfig, seed: int, prototypes: str, alike: str
) -> list[dict[str, Any]]:
    words, like, forms = language(section.language), read_alike(run, alike), read_forms(run, prototypes)
    rows: list[dict[str, Any]] = []
    for clip in clips:
        ids = [caption_id(clip.clip_id, number) for number in range(len(clip.captions))]
        seeds = [tables.row_id(seed, identity) for identity in ids]
        counts = {"n_hard": section.per_caption, "n_swap": section.swaps}
        found = negatives_of(clip.captions, seeds, (), words, like, forms, **counts)
        for identity, made in zip(ids, found, strict=True):
            common = {
                "direction": "i2t",
                "query_id": clip.clip_id,
                "candidate_id": identity,
                "ground_truth_id": identity,
                "kind": tables.NEGATIVE,
            }
            for negative in made.negatives:
                name = tables.row_id("negative", clip.clip_id, identity, text_key(negative.text))
                changes = "; ".join(f"{word} -> {other}" for word, other in negative.changes)
                told = {"text": negative.text, "instruction": changes, "status": tables.OK}
                rows.append({**common, "failure_id": name, **told})
            if not made.negatives:
                name = tables.row_id("negative", clip.clip_id, identity, None)
                rows.append({**common, "failure_id": name, "status": tables.REJECTED, "reason": made.reason})
    return rows


def stress_set(
    run: Run,
    product: str,
    file: str,
    config: ClipsConfig,
    section: NegativesConfig,
    clips: ClipSet,
    seen: ClipSet,
    listed: str | None,
    oracle: str,
    parents: tuple[str, ...],
) -> stress.StressSet:
    """Make the stress set of the measured split, or read it.

    Args:
        section: thresholds, language and lists.
        clips: whose captions are asked about; seen: the clips as the oracle sees them.
        listed: the list of pairs that is the oracle; oracle: else the training that it comes from.

    Raises:
        RunError: the oracle finds nothing to substitute.
    """
    facts: dict[str, Any]
    if listed is not None:
        facts = {"kind": "list", "path": listed, "digest": file_digest(listed)}
    else:
        facts = {"kind": "visual", **identity_of(run, oracle)}
    counts = {"n_hard": config.stress.negatives, "n_swap": section.swaps}
    thresholds: dict[str, Any] = {name: getattr(section, name) for name in ("alpha", "beta", "nearest")}
    settings = {**counts, **thresholds, "language": section.language, "split": config.split, "seed": config.seed}
    if section.same is not None:
        settings["same"] = file_digest(section.same)
    told = {name: value for name, value in facts.items() if name not in ("path", "weights")}
    recipe = Recipe({**settings, "oracle": told}, parents)
    path = run.path(product) / file
    if run.ready(product, recipe):
        return stress.load(path)
    start = time.monotonic()
    retriever = None if listed is not None else ClipRetriever.load(run.path(oracle))
    totals = WordTotals.merged(matched(seen.of(name), section, retriever) for name in ("train", config.split))
    try:
        pairs = None if listed is None else read_word_pairs(listed)
        same = [] if section.same is None else read_word_pairs(section.same)
        found = likenesses(totals, "visual", **thresholds, pairs=pairs, same=same)
    except NothingAlike as error:
        raise RunError(f"{product}: the oracle finds nothing to substitute: {error}") from None
    asked = [
        stress.Captioned(clip.clip_id, [(caption_id(clip.clip_id, n), text) for n, text in enumerate(clip.captions)])
        for clip in clips.of(config.split)
    ]
    words = language(section.language)
    items, left_out = stress.build(asked, words, alike_of(totals, found), totals.forms, **counts, seed=config.seed)
    if not items:
        raise RunError(f"{product}: no caption of split {config.split} has a substitution: {left_out}")
    made = stress.StressSet(items, facts, settings, left_out)
    stress.save(path, made)
    miners = [
        (f"what made the negatives of {name}", manifest["oracle"])
        for name, manifest in run.products()
        if manifest.get("table") == tables.CONFUSABLE.name
    ]
    run.finish(product, recipe, time.monotonic() - start, circular=stress.circular(facts, miners), rows=len(items))
    return made
