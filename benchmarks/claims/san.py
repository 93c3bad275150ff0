"""SAN on emoji: a stress test whose look-alike words come from another encoder than the negatives."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.claims.claim import Claim, Row, Sign
from benchmarks.claims.runs import CONFIGS, by_variant, columns, finished, r1, spec_of, weights_of
from benchmarks.claims.saft import emoji_of, emoji_run
from repair_ray.engines.retriever import RetrieverSpec
from repair_ray.measuring.retrievers import Named, run_of
from repair_ray.measuring.sources import source_of
from repair_ray.measuring.stress import Oracle, miners_of, stress
from repair_ray.world.generate import SPLITS

CONFIG = CONFIGS / "san.yaml"
SAN = "san"
NAMES: dict[str, tuple[str, Sign | None]] = {
    "base": ("+21.5 and +32.3 over the base", "+"),
    "vanilla_equal_steps": ("", "+"),
    "text_similar": ("text-based negatives are below", "+"),
    "random_words": ("", "+"),
    "negclip": ("", "+"),
}
NOTE = (
    "Among keyword lists, where one word of ten is replaced, SAN was level with random words; names it is measured on. "
    "beta 0.3 with the 20 nearest words was better than 0.5 with 10 and 0.7 with 5 on the validation split of another "
    "seed. Most of the gain is what any replaced word gives."
)


def emoji(seeds: int, output: Path, overrides: list[str]) -> Claim:
    """Fine-grained R@1 of every kind of negatives; the oracle is the retriever that another seed starts from."""
    source, overrides = emoji_of(overrides)
    # One more than there are seeds, so that there is always another encoder.
    starts = [emoji_run(seed, output, source, overrides) for seed in range(seeds + 1)]
    names = _names(source, output / "san-emoji-data")
    found = []
    for seed in range(seeds):
        name = f"san-emoji-{seed}"
        paths = [f"data.{split}={names / f'{split}.parquet'}" for split in SPLITS]
        start = weights_of(starts[seed], "base", SAN)
        summary = finished(CONFIG, name, output, f"seed={seed}", f"retriever.pretrained={start}", *paths, *overrides)
        coarse = {variant: r1(metrics)["mean"] for variant, metrics in by_variant(summary, SAN).items()}
        fine = _fine(output / name, start, weights_of(starts[seed + 1], "base", SAN), list(coarse), seed)
        found.append({variant: {"fine": fine[variant], "coarse": coarse[variant]} for variant in coarse})
    rows = [Row(SAN, columns(found, SAN)), *(Row(name, columns(found, name), *NAMES[name]) for name in NAMES)]
    title = "Emoji: R@1 of a name against four with a look-alike word (fine), and mean R@1 among all (coarse)."
    return Claim("san_emoji", title, SAN, "fine", rows, NOTE)


def _names(source: Path, folder: Path) -> Path:
    """The emoji data with the shorter caption alone, which is the name; the other lists keywords."""
    folder.mkdir(parents=True, exist_ok=True)
    for split in SPLITS:
        table = pq.read_table(source / f"{split}.parquet")
        names = pa.array([[min(captions, key=len)] for captions in table["captions"].to_pylist()])
        path = folder / f"{split}.parquet"
        # Another time of the file would tell a run that its data was changed.
        if not path.exists():
            pq.write_table(table.set_column(table.column_names.index("captions"), "captions", names), path)
    return folder


def _fine(folder: Path, start: Path, other: Path, variants: list[str], seed: int) -> dict[str, float]:
    run, config = run_of(str(folder))
    model = config.retriever.model
    specs = {name: spec_of(folder, name, SAN) for name in variants if name != "base"}
    named = [Named(name, spec) for name, spec in {"base": RetrieverSpec(model, str(start)), **specs}.items()]
    oracle = Oracle(Named("another seed's", RetrieverSpec(model, str(other))))
    source = source_of(None, (run, config), "test", [])
    made = stress(named, source, config.negatives, oracle=oracle, miners=miners_of(run), seed=seed)
    if made["protocol"]["circular"]:
        raise RuntimeError(f"the oracle is not independent: {made['protocol']['circular']}")
    return {name: float(result["metrics"]["r@1"]) for name, result in made["retrievers"].items()}
