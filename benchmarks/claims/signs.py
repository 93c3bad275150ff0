"""SAN on signed weather reports: are negatives that look alike worth more than random ones, or ones that mean alike?

The runs are those of `repair-ray san demo`, one a seed of the world and of training. The oracle of the fine-grained
test is the world's own list of signs that look alike, which no retriever sees. All train for as many steps: `random` on
as many negatives as SAN, `meaning` on those that its list gives, `vanilla` without any.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.claims.claim import Claim, Row, Sign
from repair_ray.cli_san import SIGNS
from repair_ray.clips.job import run_clips
from repair_ray.config import load_section
from repair_ray.sections.clips import ClipsConfig

VARIANTS = ("base", "san", "vanilla", "random", "meaning")
FIGURES = ("fine", "i2t", "t2i")
# PHOENIX-2014T, two backbones, negatives by SAN against the base and against text-based ones.
NAMES: dict[str, tuple[str, Sign | None]] = {
    "san": ("", None),
    "base": ("+21.5 and +32.3 over the base", "+"),
    "vanilla": ("", "+"),
    "random": ("", "+"),
    "meaning": ("text-based negatives are below", "+"),
}
NOTE = (
    "How hard the world is was chosen on seed 0. With few words a place or a large batch SAN and vanilla are level, "
    "since in-batch negatives hold the look-alikes already; with few clips and much noise SAN overfits."
)


def run(seed: int, output: Path, overrides: list[str] | None = None) -> dict[str, dict[str, float]]:
    """R@1 in percent of each variant: `fine` (fine-grained), `i2t` (a clip finds its caption) and `t2i`.

    A run that is finished is read, one that was stopped goes on where it was.
    """
    settings = [f"name=signs-{seed}", f"output={output}", f"seed={seed}", f"data.world.seed={seed}", *(overrides or [])]
    summary = run_clips(load_section(ClipsConfig, SIGNS, settings))
    if summary["circular"]:
        raise RuntimeError(f"the oracle is not independent: {summary['circular']}")
    found = summary["variants"]
    return {name: {figure: found[name][figure]["r@1"] for figure in FIGURES} for name in VARIANTS}


def clips(seeds: int, output: Path, overrides: list[str]) -> Claim:
    """SAN on clips against training as long without negatives, with random ones, and with words that mean alike."""
    found = [run(seed, output, overrides) for seed in range(seeds)]
    rows = [
        Row(variant, {figure: [one[variant][figure] for one in found] for figure in FIGURES}, *NAMES[variant])
        for variant in ("san", *(name for name in VARIANTS if name != "san"))
    ]
    title = "Signed weather reports as clip features: R@1 against four look-alikes (fine), and among all clips."
    return Claim("san_clips", title, "san", "fine", rows, NOTE)
