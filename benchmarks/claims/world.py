"""RePair in the demo's world: main comparison, ablations, budgets, rounds, minimal pairs. One run a seed for most."""

from __future__ import annotations

from pathlib import Path

from benchmarks.claims.claim import Claim, Row, Sign
from benchmarks.claims.minimal_pairs import accuracies
from benchmarks.claims.runs import CONFIGS, by_variant, columns, finished, r1, spec_of, weights_of

CONFIG = CONFIGS / "world.yaml"
REPAIR = "repair"
ROUNDS = 4
ROUNDS_NOTE = (
    "Failures: of the five best false positives of each training query, those that score no less than its ground "
    "truth. New: those that no round has worked on. Vanilla equal compute encodes as many items as all rounds together."
)
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
    """Round after round, from the base of the main run; and plain fine-tuning on as many items as all rounds took."""
    found = []
    for seed in range(seeds):
        base = run_of(seed, output, overrides)["base"]
        settings = [
            f"seed={seed}",
            f"data.world.seed={seed}",
            "base=null",
            f"retriever.pretrained={weights_of(output / name_of(seed), 'base', REPAIR)}",
            f"rounds={ROUNDS}",
            "controls=[vanilla_equal_compute]",
            "variants={}",
        ]
        summary = finished(CONFIG, f"rounds-{seed}", output, *settings, *overrides)
        made = summary["rounds"]
        mined = [one["mined"] for one in [*made, summary["left"]]]
        by_round = {"base": {**base, **_failures(mined[0])}}
        for number, one in enumerate(made, start=1):
            by_round[f"round_{number}"] = {**r1(one["metrics"]), **_failures(mined[number])}
        control = r1(summary["controls"]["vanilla_equal_compute"]["metrics"])
        by_round["vanilla_equal_compute"] = {**control, **dict.fromkeys(_failures(mined[0]), float("nan"))}
        found.append(by_round)
    last = f"round_{ROUNDS}"
    names: dict[str, tuple[str, Sign | None]] = {
        name: ("gains are monotone and shrink" if name.startswith("round") else "", "+")
        for name in found[0]
        if name != last
    }
    title = "R@1 on 1,000 unseen scenes, and failures of the training split that a retriever leaves, round after round."
    return Claim("rounds", title, last, "mean", _against(names, found, last), ROUNDS_NOTE)


def _failures(mined: dict[str, dict[str, int]]) -> dict[str, float]:
    """Of a query's five best false positives, those that score no less than its ground truth: all, and new ones."""
    every = sum(one["above_ground_truth"] for one in mined.values())
    known = sum(one["known_above_ground_truth"] for one in mined.values())
    return {"failures": float(every), "new failures": float(every - known)}


def minimal_pairs(seeds: int, output: Path, overrides: list[str]) -> Claim:
    """Scenes and captions that differ in one residual, by the retrievers of the main run."""
    found = []
    for seed in range(seeds):
        run_of(seed, output, overrides)
        specs = {name: spec_of(output / name_of(seed), name, REPAIR) for name in ("placement_local", *PAIRS)}
        found.append({name: accuracies(spec, seed) for name, spec in specs.items()})
    title = "Minimal pairs: two scenes that differ in one thing, and their full captions; percent right."
    return Claim("minimal_pairs", title, "placement_local", "both", _against(PAIRS, found, "placement_local"))
