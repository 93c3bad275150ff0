"""RePair in the demo's world: main comparison, ablations, budgets, rounds, minimal pairs. One run a seed for most."""

from __future__ import annotations

from pathlib import Path

from benchmarks.claims.claim import Claim, Row, Sign
from benchmarks.claims.minimal_pairs import accuracies
from benchmarks.claims.runs import CONFIGS, by_variant, columns, finished, r1, spec_of, weights_of

CONFIG = CONFIGS / "world.yaml"
REPAIR = "repair"
ROUNDS = 3
# What the paper says of each (arXiv 2608.29604, as summarised in its abstract and tables): R@1 on Flickr30K.
MAIN: dict[str, tuple[str, Sign | None]] = {
    "base": ("fine-tuned CLIP is below", "+"),
    "vanilla_equal_compute": ("", "+"),
    "vanilla_equal_steps": ("", "+"),
    "mined": ("below repair", "+"),
    "error_agnostic": ("-2.10 i2t, -2.42 t2i", "+"),
    "negclip": ("below repair", "+"),
    "paraphrase": ("below repair", "+"),
    "triplet": ("below repair", "+"),
}
ABLATIONS: dict[str, tuple[str, Sign | None]] = {
    "error_agnostic": ("largest drop: -2.10 i2t, -2.42 t2i", "+"),
    "no_audit": ("drops", "+"),
    "random_candidate": ("drops", "+"),
    "push_only": ("drops", "+"),
    "i2t_only": ("drops", "+"),
    "t2i_only": ("drops", "+"),
    "placement_local": ("the paper's own: dispersing drops", "-"),
    "placement_both": ("", None),
}
BUDGETS: dict[str, tuple[str, Sign | None]] = {
    "budget_half": ("more data helps", "+"),
    "budget_quarter": ("more data helps", "+"),
    "base": ("", "+"),
}
PAIRS: dict[str, tuple[str, Sign | None]] = {
    "base": ("", "+"),
    "vanilla_equal_compute": ("", "+"),
    "mined": ("", "+"),
    REPAIR: ("dispersing loses fine contrasts", "+"),
    "placement_both": ("", None),
}


def run_of(seed: int, output: Path, overrides: list[str]) -> dict[str, dict[str, float]]:
    """R@1 of every variant of one seed's run."""
    settings = [f"seed={seed}", f"data.world.seed={seed}", *overrides]
    summary = finished(CONFIG, name_of(seed), output, *settings)
    return {name: r1(metrics) for name, metrics in by_variant(summary, REPAIR).items()}


def name_of(seed: int) -> str:
    return f"world-{seed}"


def _against(
    names: dict[str, tuple[str, Sign | None]], found: list[dict[str, dict[str, float]]], first: str
) -> list[Row]:
    rows = [Row(first, columns(found, first))]
    return rows + [Row(name, columns(found, name), *names[name]) for name in names]


def main(seeds: int, output: Path, overrides: list[str]) -> Claim:
    """Repair against the baselines, all from the same base and scenes."""
    found = [run_of(seed, output, overrides) for seed in range(seeds)]
    return Claim("main", "R@1 on 1,000 unseen scenes.", REPAIR, "mean", _against(MAIN, found, REPAIR))


def ablations(seeds: int, output: Path, overrides: list[str]) -> Claim:
    """Repair without one of its parts at a time."""
    found = [run_of(seed, output, overrides) for seed in range(seeds)]
    title = "R@1 on 1,000 unseen scenes, repair without one of its parts."
    return Claim("ablations", title, REPAIR, "mean", _against(ABLATIONS, found, REPAIR))


def budget(seeds: int, output: Path, overrides: list[str]) -> Claim:
    """Repair with fewer failures mined."""
    found = [run_of(seed, output, overrides) for seed in range(seeds)]
    title = "R@1 on 1,000 unseen scenes by mining.budget (failures of a direction): 5,000, 2,500, 1,250, none."
    return Claim("budget", title, REPAIR, "mean", _against(BUDGETS, found, REPAIR))


def rounds(seeds: int, output: Path, overrides: list[str]) -> Claim:
    """Round after round, each mined with the retriever that the one before has left."""
    found = []
    for seed in range(seeds):
        scores = run_of(seed, output, overrides)
        by_round = {"base": scores["base"], "round_1": scores[REPAIR]}
        weights = weights_of(output / name_of(seed), REPAIR, REPAIR)
        for number in range(2, ROUNDS + 1):
            name = f"{name_of(seed)}-round-{number}"
            settings = [f"seed={seed}", f"data.world.seed={seed}", "base=null", "controls=none", "variants={}"]
            summary = finished(CONFIG, name, output, *settings, f"retriever.pretrained={weights}", *overrides)
            by_round[f"round_{number}"] = r1(summary["rounds"][0]["metrics"])
            weights = weights_of(output / name, REPAIR, REPAIR)
        found.append(by_round)
    last = f"round_{ROUNDS}"
    names: dict[str, tuple[str, Sign | None]] = {
        name: ("gains are monotone and shrink", "+") for name in found[0] if name != last
    }
    return Claim("rounds", "R@1 on 1,000 unseen scenes, round after round.", last, "mean", _against(names, found, last))


def minimal_pairs(seeds: int, output: Path, overrides: list[str]) -> Claim:
    """Scenes and captions that differ in one residual, by the retrievers of the main run."""
    found = []
    for seed in range(seeds):
        run_of(seed, output, overrides)
        specs = {name: spec_of(output / name_of(seed), name, REPAIR) for name in ("placement_local", *PAIRS)}
        found.append({name: accuracies(spec, seed) for name, spec in specs.items()})
    title = "Minimal pairs: two scenes that differ in one thing, and their full captions; percent right."
    return Claim("minimal_pairs", title, "placement_local", "both", _against(PAIRS, found, "placement_local"))
