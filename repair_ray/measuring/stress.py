"""Retrievers put to the fine-grained stress test, with an oracle that should know nothing of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from repair_ray import tables
from repair_ray.config import Config, NegativesConfig
from repair_ray.data.duplicates import joined_groups, same_key_links
from repair_ray.data.records import DataError
from repair_ray.data.word_pairs import file_digest, read_word_pairs
from repair_ray.engines.san.alike import NothingAlike, alike_of, likenesses
from repair_ray.engines.san.totals import WordMatcher, WordTotals
from repair_ray.engines.words import language
from repair_ray.evaluation.protocols import SCORES
from repair_ray.evaluation.stress import (
    TIE_RULE,
    Captioned,
    StressSet,
    ask,
    build,
    circular,
    load,
    save,
)
from repair_ray.measuring.encoding import CHUNK, Seen, chunks, encode
from repair_ray.measuring.retrievers import Named, Which, load_all, retrievers_of
from repair_ray.measuring.retrievers import load as load_retriever
from repair_ray.measuring.sources import Source, section_of
from repair_ray.run import Run, RunError

if TYPE_CHECKING:
    from repair_ray.engines.encoder import Encoder

BOOTSTRAP = 1000


@dataclass(frozen=True)
class Oracle:
    """Who says which words look alike: a retriever, or a list of pairs."""

    retriever: Named | None = None
    pairs: str | None = None

    def facts(self) -> dict[str, Any]:
        """What identifies it."""
        if self.retriever is None:
            return {"kind": "list", "path": str(self.pairs), "digest": file_digest(str(self.pairs))}
        return {"kind": "visual", **self.retriever.facts()}


def oracle_of(target: str, which: Which = "base", pretrained: str | None = None) -> Oracle:
    """The oracle that a command names. Raises as `retrievers_of`; RunError where it names two."""
    if target.endswith((".csv", ".tsv", ".parquet")):
        return Oracle(pairs=target)
    found = retrievers_of(target, which, pretrained)
    if len(found) != 1:
        raise RunError("the oracle is one retriever: --oracle-which base or repaired")
    return Oracle(found[0])


def negatives_section(own: tuple[Run, Config] | None, settings: list[str]) -> NegativesConfig:
    """The run's own negatives section, or the defaults, changed by `key=value` settings. Raises `ConfigError`."""
    given = {} if own is None else own[1].negatives.model_dump(mode="json")
    return section_of(NegativesConfig, "negatives", settings, "alpha=0.3", given=given)


def stress(
    retrievers: Sequence[Named],
    source: Source,
    section: NegativesConfig,
    *,
    oracle: Oracle | None = None,
    file: Path | None = None,
    miners: Sequence[tuple[str, dict[str, Any]]] = (),
    bootstrap: int = BOOTSTRAP,
    seed: int = 0,
) -> dict[str, Any]:
    """Fine-grained R@1 and MRR of each retriever, on a stress set that is built with an oracle, or read from a file.

    Args:
        section: thresholds, counts and language of the substitutions.
        file: the stress set: read where it is there, else written.
        miners: what made the negatives that a retriever was trained on (`miners_of`).

    Raises:
        DataError: no oracle, a file of other data, or nothing to substitute. RetrieverError: as building.
    """
    there = file is not None and file.is_file()
    if there == (oracle is not None):
        told = f"{file} is there and says which was used: leave --oracle out, or name another --set"
        raise DataError(told if there else "name who says which words look alike: --oracle, a retriever or a list")
    made = load(file) if there and file is not None else None
    encoders = load_all(retrievers)
    seen, features = encode(source, encoders)
    if made is None:
        assert oracle is not None
        made = _build(seen, source, oracle, section, seed)
        if file is not None:
            save(file, made)
    place = {image: n for n, image in enumerate(seen.images)}
    known = sum(item.item in place for item in made.items)
    if not known:
        raise DataError(f"none of the {len(made.items)} questions of {file} is of a picture of {source.path}")
    results = [
        ask(made, place, found.images, encoder.encode_texts, bootstrap=bootstrap, seed=seed)
        for found, encoder in zip(features, encoders, strict=True)
    ]
    own = [(f"the retriever {named.label} itself", {"kind": "visual", **named.facts()}) for named in retrievers]
    facts = {
        **seen.protocol(),
        "ties": TIE_RULE,
        "oracle": made.oracle,
        "circular": circular(made.oracle, [*miners, *own]),
        "settings": made.settings,
        "questions": known,
        "left_out": made.left_out,
        "elsewhere": len(made.items) - known,
        "stress_set": made.digest(),
        "scores": SCORES,
    }
    labelled = zip(retrievers, results, strict=True)
    return {"protocol": facts, "retrievers": {named.label: {**named.facts(), "metrics": m} for named, m in labelled}}


def miners_of(run: Run) -> list[tuple[str, dict[str, Any]]]:
    """What said in a run which words are alike, for each of its tables of confusable words."""
    return [
        (f"what made the negatives of {name}", manifest["oracle"])
        for name, manifest in run.products()
        if manifest.get("table") == tables.CONFUSABLE.name and "oracle" in manifest
    ]


def _build(seen: Seen, source: Source, oracle: Oracle, section: NegativesConfig, seed: int) -> StressSet:
    words, pairs = language(section.language), None
    captions = _captions(seen)
    texts = [[text for _, text in found.captions] for found in captions]
    if oracle.retriever is None:
        pairs = read_word_pairs(str(oracle.pairs))
        totals, _ = WordMatcher(words).match(texts)
    else:
        totals = _matched(source, load_retriever(oracle.retriever), section, oracle.retriever.label)
    try:
        found = likenesses(
            totals,
            "visual",
            alpha=section.alpha,
            beta=section.beta,
            nearest=section.nearest,
            pairs=pairs,
            same=[] if section.same is None else read_word_pairs(section.same),
        )
    except NothingAlike as error:
        raise DataError(f"the oracle finds nothing to substitute: {error}") from None
    counts = {"n_hard": section.per_caption, "n_swap": section.swaps}
    items, left_out = build(captions, words, alike_of(totals, found), totals.forms, **counts, seed=seed)
    if not items:
        raise DataError(f"no caption of {source.path} has a substitution: {left_out}")
    asked = section.model_dump(mode="json", exclude={"confusable", "similarity"})
    return StressSet(items, oracle.facts(), {**asked, "seed": seed, "split": seen.split}, left_out)


def _captions(seen: Seen) -> list[Captioned]:
    """The captions of each image, and those of the others of its group: by group, and by equal pixels."""
    groups = joined_groups(seen.groups, same_key_links(seen.pixels))
    own: dict[int, list[tuple[str, str]]] = defaultdict(list)
    of_group: dict[str, list[int]] = defaultdict(list)
    for caption, owner in zip(seen.captions, seen.owners, strict=True):
        own[owner].append((caption.identity, caption.text))
    for image, group in enumerate(groups):
        of_group[group].append(image)
    return [
        Captioned(
            seen.images[image],
            own[image],
            [text for other in of_group[group] if other != image for _, text in own[other]],
        )
        for image, group in enumerate(groups)
    ]


def _matched(source: Source, encoder: Encoder, section: NegativesConfig, name: str) -> WordTotals:
    from repair_ray.engines.visual_tokens import VisualTokens

    tokens = VisualTokens(encoder, section.tokens, name)
    matcher = WordMatcher(language(section.language), encoder.encode_texts, section.prompt, section.alpha)
    parts = []
    for chunk in chunks(source.items(), CHUNK):
        captions = [[caption.text for caption in item.captions] for item in chunk]
        part, _ = matcher.match(captions, list(tokens([item.picture for item in chunk])))
        parts.append(part)
    return WordTotals.merged(parts)
