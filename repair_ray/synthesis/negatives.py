"""Strategies that write negative captions: `san` by words that look alike, or its rivals; `negclip` by swaps."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from repair_ray import tables
from repair_ray.config import Config, NegativesConfig, Strategy
from repair_ray.data.files import filesystem
from repair_ray.data.word_pairs import read_word_pairs
from repair_ray.engines.retriever import RetrieverSpec, weights_identity
from repair_ray.engines.san.prototypes import Likeness, confusable, listed_words, random_words
from repair_ray.engines.san.vocabulary import names_of
from repair_ray.run import Recipe, Run, RunError
from repair_ray.stages.graph import Progress, quiet
from repair_ray.stages.match import Needs, WordTotals, match_words, word_totals
from repair_ray.stages.negatives import write_negatives


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
    needs = needed(section)
    if needs == "forms":
        match_words(run, config, matches, needs, None, splits, progress=progress)
    else:
        match_words(run, config, matches, needs, spec, splits, parents, weights=weights, progress=progress)
    _prototypes(run, prototypes, matches, needs, spec)
    _confusable(run, config, alike, matches, prototypes, needs, spec)
    write_negatives(run, config, product, splits, prototypes, alike, progress)


def needed(section: NegativesConfig) -> Needs:
    """What has to be known of the words for a section's negatives."""
    if section.confusable is not None or section.similarity == "random":
        return "forms"
    return "prototypes" if section.similarity == "visual" else "text_vectors"


def _prototypes(run: Run, product: str, matches: str, needs: Needs, spec: RetrieverSpec) -> None:
    recipe = Recipe({}, (matches,))
    if run.ready(product, recipe):
        return
    start = time.monotonic()
    totals = word_totals(run, matches)
    vectors = totals.sums.vectors()
    rows: list[dict[str, Any]] = []
    for place, key in enumerate(totals.keys):
        forms, count, best = totals.forms[key], int(totals.sums.matches[place]), float(totals.sums.best[place])
        by_text: dict[str, int] = {}
        for (_, text), number in forms.items():
            by_text[text] = by_text.get(text, 0) + number
        unmatched = needs == "prototypes" and not count
        rows.append(
            {
                "word_id": tables.row_id(*key),
                "word": min(by_text, key=lambda text: (-by_text[text], text)),
                "lemma": key[0],
                "pos": key[1],
                "images": totals.images[place],
                "matches": count,
                "best": best if np.isfinite(best) else None,
                "vector": vectors[place] if count else totals.text_vectors.get(key),
                "forms": [{"tag": tag, "text": text, "count": n} for (tag, text), n in sorted(forms.items())],
                "status": tables.REJECTED if unmatched else tables.OK,
                "reason": "no visual token is as near to it as negatives.alpha" if unmatched else None,
            }
        )
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
    recipe = Recipe({"negatives": settings}, (prototypes,))
    if run.ready(product, recipe):
        return
    start = time.monotonic()
    totals = word_totals(run, matches)
    likenesses = _likenesses(config, totals, needs, product)
    table = tables.to_table(_pairs(totals, likenesses), tables.CONFUSABLE.schema)
    run.commit(product, recipe, tables.CONFUSABLE, table, time.monotonic() - start, oracle=oracle)


def _likenesses(config: Config, totals: WordTotals, needs: Needs, product: str) -> list[Likeness]:
    section, keys = config.negatives, totals.keys
    if section.confusable is not None:
        pairs = read_word_pairs(section.confusable)
        found = listed_words(pairs, keys, names_of(keys, totals.forms), nearest=section.nearest)
        if not found:
            raise RunError(
                f"{product}: none of the {len(pairs)} pairs of {section.confusable} has both of its words, as one part "
                "of speech, in the captions of the training splits; is negatives.language right?"
            )
        return found
    if section.similarity == "random":
        found = random_words(keys, nearest=section.nearest, seed=config.seed)
        if not found:
            raise RunError(
                f"{product}: the captions hold no two words of one part of speech; is negatives.language right?"
            )
        return found
    if needs == "text_vectors":
        vectors = np.stack([totals.text_vectors[key] for key in keys]) if keys else np.zeros((0, 0), np.float32)
        there = np.ones(len(keys), bool)
    else:
        vectors, there = totals.sums.vectors(), totals.sums.matches > 0
    if not there.any():
        raise RunError(f"{product}: {_no_match(totals, section)}")
    found = confusable(vectors, keys, there, beta=section.beta, nearest=section.nearest)
    if not found:
        near = confusable(vectors, keys, there, beta=-1.0, nearest=1)
        best = max((pair.cosine for pair in near if pair.cosine is not None), default=None)
        told = "no two words of one part of speech have one" if best is None else f"the nearest two have {best:.3f}"
        raise RunError(f"{product}: no two words have a cosine of negatives.beta={section.beta:g} ({told}); lower it")
    return found


def _no_match(totals: WordTotals, section: NegativesConfig) -> str:
    best = float(totals.sums.best.max(initial=-np.inf))
    if not np.isfinite(best):
        return "the captions hold no content word; is negatives.language right?"
    return (
        f"no visual token has a cosine of negatives.alpha={section.alpha:g} with a word of its captions "
        f"(the nearest has {best:.3f}); lower it"
    )


def _pairs(totals: WordTotals, likenesses: Sequence[Likeness]) -> list[dict[str, Any]]:
    """The rows of a `confusable` table; a word that has none is a rejected row."""
    rows: list[dict[str, Any]] = []
    ranks: dict[int, int] = {}
    for pair in likenesses:
        (word, pos), (other, _) = totals.keys[pair.word], totals.keys[pair.other]
        ranks[pair.word] = ranks.get(pair.word, 0) + 1
        rows.append(
            {
                "pair_id": tables.row_id(word, pos, other),
                "word": word,
                "pos": pos,
                "other": other,
                "rank": ranks[pair.word],
                "cosine": pair.cosine,
                "status": tables.OK,
            }
        )
    for place, (word, pos) in enumerate(totals.keys):
        if place not in ranks:
            none = {"status": tables.REJECTED, "reason": "no word is like it"}
            rows.append({"pair_id": tables.row_id(word, pos, None), "word": word, "pos": pos, **none})
    return rows


def file_digest(path: str) -> str:
    """`sha256:<16 hex digits>` of a file's content. Raises OSError where there is none."""
    where, inner = filesystem(path)
    with where.open_input_stream(inner) as stream:
        return f"sha256:{hashlib.sha256(stream.readall()).hexdigest()[:16]}"
