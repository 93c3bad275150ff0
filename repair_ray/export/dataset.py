"""Export the hard pairs of a run: collect them, write them in a format, tell in a card what they are."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from repair_ray import __version__
from repair_ray.config import Config
from repair_ray.export.cards import write_card
from repair_ray.export.folder import whole_folder
from repair_ray.export.lists import write_csv, write_jsonl, write_negclip, write_triplets
from repair_ray.export.pairs import HardPair, hard_pairs, originals
from repair_ray.export.parquet import write_parquet
from repair_ray.export.pictures import Read, reader
from repair_ray.export.shards import write_tripletclip, write_webdataset
from repair_ray.run import Run, RunError
from repair_ray.stages.products import result_round, round_place, rounds_made

FORMATS = ("webdataset", "tripletclip", "negclip", "csv", "hf", "sentence-transformers", "jsonl")


def export_pairs(
    run: Run,
    config: Config,
    out: Path,
    format: str,
    *,
    round_: int | None = None,
    overwrite: bool = False,
    shard_mb: int = 256,
) -> dict[str, Any]:
    """Write the accepted edits to the folder `out`; returns what `export.json` in it holds.

    Args:
        config: the one that the run was made with.
        format: one of `FORMATS`.
        round_: the round whose edits they are; None: all rounds to the one that the run has ended with.
        shard_mb: MiB of one tar or Parquet file.

    Raises:
        RunError: an unknown format, no accepted edit, a picture that cannot be read, or as `check_out`.
    """
    if format not in FORMATS:
        raise RunError(f"unknown format {format!r}; known: {', '.join(FORMATS)}")
    made_with = f"repair_ray {__version__}"
    last = result_round(run) if round_ is None else round_
    numbers = [number for number in rounds_made(run) if number <= last] if round_ is None else [round_]
    places = [round_place(number) for number in numbers or [last]]
    facts: dict[str, Any] = {"format": format, "run": config.name, "rounds": places, "made_with": made_with}
    with whole_folder(out, overwrite, facts) as folder:
        pairs = [pair for place in places for pair in hard_pairs(run, config, place)]
        facts["written"] = _write(run, config, pairs, folder, format, shard_mb * 2**20)
        facts |= _counts(pairs)
        write_card(folder, config, facts, pairs[0].record().keys())
    return facts


def _write(
    run: Run, config: Config, pairs: list[HardPair], folder: Path, format: str, max_bytes: int
) -> dict[str, int]:
    read: Read = reader(run, config.data)
    split = config.mining.split
    match format:
        case "webdataset":
            return write_webdataset(pairs, read, folder, max_bytes)
        case "tripletclip":
            return write_tripletclip(pairs, read, folder, max_bytes)
        case "negclip":
            return write_negclip(pairs, read, folder)
        case "csv":
            return write_csv(pairs, read, folder, originals(run, config.trained_splits))
        case "hf":
            return write_parquet(pairs, read, folder, split, max_bytes)
        case "sentence-transformers":
            return write_triplets(pairs, read, folder)
        case _:
            return write_jsonl(pairs, read, folder)


def _counts(pairs: list[HardPair]) -> dict[str, Any]:
    """Pairs by direction and by who made the edit, the synthetic items among them."""
    makers = Counter((pair.direction, pair.about["editor"], pair.about["model"]) for pair in pairs)
    return {
        "directions": dict(sorted(Counter(pair.direction for pair in pairs).items())),
        "synthetic_captions": sum(pair.caption.synthetic for pair in pairs),
        "synthetic_images": sum(pair.image.synthetic for pair in pairs),
        "makers": [
            {"direction": direction, "editor": editor, "model": model, "pairs": count}
            for (direction, editor, model), count in sorted(makers.items(), key=str)
        ],
        "judges": sorted({str(pair.about["judge"]) for pair in pairs}),
    }
