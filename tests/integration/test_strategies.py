"""Whole rounds that start or go otherwise than the demo: a retriever with weights, random pairs as the strategy."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from repair_ray.run import Run

pytestmark = [pytest.mark.integration, pytest.mark.whole_runs]

SHORT = ("training.steps=6", "training.validate_every=6", "mining.budget=40", "edit.candidates=1")


def test_random_pairs_as_the_strategy_with_mined_pairs_as_control(
    small_run: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    run = type(small_run)(tmp_path_factory.mktemp("agnostic"))
    ended = run.finish(*SHORT, "base.steps=6", "strategy=error_agnostic", "controls=[mined]")
    assert ended.returncode == 0, ended.stderr[-3000:]
    tables = Run(run.folder)
    assert tables.made_from("round-1/edits")["failures"] == "round-1/random_failures"
    assert tables.made_from("controls/mined/edits")["failures"] == "round-1/failures"
    drawn = {row["failure_id"] for row in tables.read("round-1/random_failures").to_pylist()}
    assert {row["failure_id"] for row in tables.read("round-1/random_verdicts").to_pylist()} == drawn
    made = run.summary()["rounds"][0]
    assert sum(made["failures"].values()) == len(drawn) and sum(made["verdicts"].values()) == len(drawn)
    assert made["truth"]["audit_precision"] is not None


def test_a_retriever_with_weights_is_repaired_and_other_weights_are_refused(
    small_run: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    base = small_run.folder / "base/training/model.safetensors"
    run = type(small_run)(tmp_path_factory.mktemp("weights"))
    settings = (*SHORT, "base=null", "controls=none", "retriever.precision=bf16")
    ended = run.finish(*settings, f"retriever.pretrained={base}")
    assert ended.returncode == 0, ended.stderr[-3000:]
    made, undisturbed = run.summary(), small_run.summary()
    # The base run's own weights, embedded in half precision: its figures within that precision.
    for direction in ("i2t", "t2i"):
        ours, theirs = (s["base"]["metrics"][direction]["r@10"] for s in (made, undisturbed))
        assert ours == pytest.approx(theirs, abs=3)
    other = small_run.folder / "round-1/training/model.safetensors"
    refused = run.finish(*settings, f"retriever.pretrained={other}")
    assert refused.returncode == 2 and "round-1/embeddings" in refused.stderr
    assert "retriever.weights was 'sha256:" in refused.stderr
    assert run.summary()["config"]["retriever"]["pretrained"] == str(base)


def test_strategies_and_terms_beside_one_round(small_run: Any, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Every strategy that writes other edits, a teacher's terms, mixing, and frozen towers: variants of one round."""
    base = small_run.folder / "base/training/model.safetensors"
    fine = "objective: {fine_grained: {candidates: batch}}"
    run = type(small_run)(tmp_path_factory.mktemp("variants"))
    settings = (
        *SHORT,
        "base=null",
        f"retriever.pretrained={base}",
        "controls=none",
        "negatives={alpha: -1, beta: -1}",
        f"teacher={{retriever: {{model: tiny-64, pretrained: {base}}}}}",
        "variants={"
        f"swaps: {{strategy: negclip, {fine}}}, "
        "alike: {strategy: san, objective: {fine_grained: true}}, "
        f"both: {{strategy: triplet, negatives: {{similarity: random, per_caption: 1}}, {fine}}}, "
        "other_words: {strategy: paraphrase}, "
        "taught: {strategy: vanilla, objective: "
        "{soft_labels: true, intra_modal: {kinds: [image, text]}, distill: true}}, "
        "mixed: {objective: {infonce_weight: 0, positive_mixing: true, hard_negative_mixing: {k: 5}}}, "
        "frozen: {training: {freeze: [text], layer_decay: 0.8}}}",
    )
    ended = run.finish(*settings)
    assert ended.returncode == 0, ended.stderr[-3000:]
    made = Run(run.folder)
    kinds = {name: set(made.read(f"controls/{name}/edits")["kind"].to_pylist()) for name in ("swaps", "other_words")}
    assert kinds == {"swaps": {"negative"}, "other_words": {"paraphrase"}}
    both = [row for row in made.read("controls/both/edits").to_pylist() if row["status"] == "ok"]
    assert {row["direction"] for row in both} == {"i2t", "t2i"}
    assert all(row["uri"] for row in both if row["direction"] == "t2i")
    # What agrees with the round is the round's: no second mining, audit or editing.
    products = {name for name, _ in made.products()}
    assert not {f"controls/{name}/edits" for name in ("mixed", "frozen", "taught")} & products
    assert not any(name.startswith("controls/") and name.endswith(("failures", "verdicts")) for name in products)
    last = {name: facts["history"][-1] for name, facts in run.summary()["training"].items()}
    for name, terms in {
        "swaps": {"infonce", "fine_grained"},
        "taught": {"infonce", "soft_labels", "intra_modal_image", "intra_modal_text", "distill"},
        "mixed": {"positive_mixing", "hard_negative_mixing"},
    }.items():
        assert terms == set(last[f"controls/{name}/training"]) - {"step", "validation"}
    frozen, start = (load_file(path) for path in (run.folder / "controls/frozen/training/model.safetensors", base))
    moved = {name for name in start if not torch.equal(start[name], frozen[name])}
    assert moved and all(name.startswith("visual.") or name == "logit_scale" for name in moved)
    # The same command again does nothing, and a variant with other settings is refused by name.
    before = run.manifests()
    assert run.finish(*settings).returncode == 0 and run.manifests() == before
    refused = run.finish(*settings, "variants.frozen.training.freeze=[image]")
    assert refused.returncode == 2 and "controls/frozen/training" in refused.stderr
