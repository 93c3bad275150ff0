"""HNCSE against SimCSE on sentences: a tiny text tower trained from scratch on captions alone.

SimCSE, positive mixing, hard-negative mixing and both, with the same texts, batches, dropout and steps. What is
measured is Spearman's correlation x 100 with the graded truth of `graded_captions`. The steps are those of
`repair-ray text run`, without Ray. A seed that has been measured before is read from its file.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from benchmarks.claims.claim import Claim, Row, Sign
from benchmarks.claims.graded_captions import Graded, emoji, world
from benchmarks.claims.saft import emoji_of
from repair_ray.config import TextObjectiveConfig, TextTrainingConfig
from repair_ray.data.sts import SentencePair
from repair_ray.data.text import text_key
from repair_ray.engines.encoder import Preprocess, build_model
from repair_ray.engines.retriever import RetrieverSpec
from repair_ray.evaluation.sts import shared_words, spearman
from repair_ray.run import read_json, write_json
from repair_ray.training.texts.batches import TextLoader, TextPlan, TextSet
from repair_ray.training.texts.trainer import TextTrainer
from repair_ray.training.texts.validation import StsValidator

MODEL = "tiny-64"
REFERENCE = "simcse"
VARIANTS = ("simcse", "positive_mixing", "positive_mixing_fixed", "hard_negative_mixing", "both")
# Chosen on the validation pairs of other seeds (100 to 102) than are measured: rate, temperature and dropout where
# SimCSE alone is best, then margin and mix of PM, then k and pairs of HNM. PM by similarities is shown beside the PM
# that was best there, whose fixed weight stays near the positive.
RATES = {"world": 1e-4, "emoji": 3e-4}
STEPS, BATCH, TEMPERATURE, DROPOUT = 120, 64, 0.1, 0.1
PM: dict[str, dict[str, Any]] = {
    "positive_mixing": {"margin": 0.1},
    "positive_mixing_fixed": {"margin": 0.1, "mix": 0.9},
    "both": {"margin": 0.1, "mix": 0.9},
}
HNM: dict[str, Any] = {"k": 20, "pairs": 64}
# Seven STS sets in the paper (arXiv 2411.12156): both are about two points above SimCSE in the mean.
NAMES: dict[str, tuple[str, Sign | None]] = {
    "untrained": ("", None),
    REFERENCE: ("", None),
    "positive_mixing": ("about +2 to SimCSE", "<="),
    "positive_mixing_fixed": ("", "<="),
    "hard_negative_mixing": ("about +2 to SimCSE", "<="),
    "both": ("", "<="),
}


def objective_of(variant: str) -> TextObjectiveConfig:
    """The objective of a variant; in each of them the weights of the terms add up to one."""
    share = 0.5 if variant == "both" else 1.0
    return TextObjectiveConfig.model_validate(
        {
            "temperature": TEMPERATURE,
            "dropout": DROPOUT,
            "simcse_weight": float(variant == "simcse"),
            "positive_mixing": {**PM[variant], "weight": share} if variant in PM else None,
            "hard_negative_mixing": {**HNM, "weight": share} if variant in ("hard_negative_mixing", "both") else None,
        }
    )


def settings() -> dict[str, Any]:
    """What every seed is trained with."""
    return {
        "rates": RATES,
        "batch": BATCH,
        "objectives": {variant: objective_of(variant).model_dump(mode="json") for variant in VARIANTS},
    }


def world_captions(seeds: int, output: Path, overrides: list[str]) -> Claim:
    """On the world's captions; the truth is the facts that two captions share."""
    return _claim("hncse", seeds, output, lambda seed: world(seed))


def emoji_names(seeds: int, output: Path, overrides: list[str]) -> Claim:
    """On the names of emoji; the truth is the keywords that two of them share, and their groups."""
    folder, _ = emoji_of(overrides)
    return _claim("hncse_emoji", seeds, output, lambda seed: emoji(folder, seed))


def _claim(name: str, seeds: int, output: Path, data: Callable[[int], Graded]) -> Claim:
    found = [run(name, seed, output, data) for seed in range(seeds)]
    title = f"Spearman x 100 of {found[0]['pairs']:,} sentence pairs."
    words = float(np.mean([one["words"] for one in found]))
    note = f"Words in common alone give {words:.1f}: the figures compare losses, and show no good sentence encoder."
    rows = [
        Row(variant, {"Spearman": [one["spearman"][variant] for one in found]}, *NAMES.get(variant, ("", None)))
        for variant in (REFERENCE, *(name for name in NAMES if name != REFERENCE))
    ]
    return Claim(name, title, REFERENCE, "Spearman", rows, note)


def run(name: str, seed: int, output: Path, data: Callable[[int], Graded], steps: int = STEPS) -> dict[str, Any]:
    """The figures of one seed: how many pairs, Spearman x 100 of each variant, and of words in common."""
    file = output / f"{name}-{seed}.json"
    found = read_json(file)
    asked = {"steps": steps, **settings()}
    if found is None or found["made_by"] != asked:
        found = {"seed": seed, "made_by": asked, **_measured(data(seed), seed, steps)}
        output.mkdir(parents=True, exist_ok=True)
        write_json(file, found)
    return found


def _measured(data: Graded, seed: int, steps: int) -> dict[str, Any]:
    pairs = data.test
    words = shared_words([(pair.first, pair.second) for pair in pairs])
    return {
        "texts": len(data.texts),
        "pairs": len(pairs),
        "words": spearman(words, np.array([pair.score for pair in pairs])),
        "spearman": {variant: train(data, variant, seed, steps) for variant in ("untrained", *VARIANTS)},
    }


def train(data: Graded, variant: str, seed: int, steps: int) -> float:
    """Spearman x 100 on the test pairs of a text tower after its training."""
    model: nn.Module = build_model(RetrieverSpec(MODEL), seed=seed)
    preprocess = Preprocess(model, MODEL)
    if variant != "untrained":
        config = TextTrainingConfig(steps=steps, batch_size=BATCH, lr=RATES[data.name])
        trainer = TextTrainer(model, _texts(data), config, objective_of(variant), seed)
        loader = TextLoader(TextPlan(len(data.texts), BATCH, seed), data.texts, preprocess)
        for step in range(steps):
            trainer.step(step, *loader.step(step))
    return _score(model, data.test, preprocess)


def _texts(data: Graded) -> TextSet:
    keys, groups = (np.unique(column, return_inverse=True)[1] for column in ([*map(text_key, data.texts)], data.groups))
    return TextSet(data.texts, keys, groups)


def _score(model: nn.Module, pairs: list[SentencePair], preprocess: Preprocess) -> float:
    first, second = [pair.first for pair in pairs], [pair.second for pair in pairs]
    return StsValidator(first, second, np.array([pair.score for pair in pairs]), preprocess, "cpu").score(model)
