"""A run's retriever as files that other programs load: open_clip's own, or a CLIPModel of transformers."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import open_clip
import torch
from torch import nn

from repair_ray import __version__
from repair_ray.config import Config
from repair_ray.engines.encoder import build_model, resolve_model, save_config, save_weights
from repair_ray.engines.retriever import has_own_weights
from repair_ray.export.cards import write_model_card
from repair_ray.export.clip_model import write_clip_model
from repair_ray.export.folder import whole_folder
from repair_ray.run import Run, RunError
from repair_ray.stages.products import ROUND, result_place
from repair_ray.training.trained import spec_of

FORMATS = ("open_clip", "open_clip-pt", "hf")
WHICH = ("repaired", "base")
# The name that open_clip looks for, in a folder (`local-dir:`) and on the hub (`hf-hub:`).
OPEN_CLIP_WEIGHTS = "open_clip_model.safetensors"
OPEN_CLIP_PT = "open_clip_model.pt"


def export_model(
    run: Run,
    config: Config,
    out: Path,
    format: str,
    *,
    which: str = "repaired",
    round_: int | None = None,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Write a retriever of a run to the folder `out`, in fp32; returns what `export.json` in it holds.

    Args:
        config: the one that the run was made with.
        format: one of `FORMATS`.
        which: `repaired`, as the round has trained it, or `base`, as it was before.
        round_: None for the round that the run has ended with.

    Raises:
        RunError: an unknown format, a retriever that is not trained yet, or as `check_out`.
        RetrieverError: weights that cannot be had, or (`hf`) an architecture that a CLIPModel cannot hold.
    """
    for value, known in ((format, FORMATS), (which, WHICH)):
        if value not in known:
            raise RunError(f"unknown {value!r}; known: {', '.join(known)}")
    place = ROUND if which == "base" else result_place(run, round_)
    facts: dict[str, Any] = {
        "format": format,
        "which": which,
        "run": config.name,
        "round": place,
        "made_with": f"repair_ray {__version__}",
        "split": config.evaluation.split,
        "metrics": _metrics(run, place if which == "repaired" else "base"),
    }
    with whole_folder(out, overwrite, facts) as folder:
        spec = spec_of(run, config, "base" if which == "base" else "repaired", place)
        model = build_model(replace(spec, precision="fp32")).eval()
        name = config.retriever.model
        if format == "hf":
            write_clip_model(model, name, folder)
        else:
            facts |= _write_open_clip(model, name, folder, format)
        for weights in folder.glob("*.safetensors"):
            weights.chmod(0o644)  # safetensors makes its files private; an export is for other readers
        facts["parameters"] = sum(parameter.numel() for parameter in model.parameters())
        write_model_card(folder, config, facts)
    return facts


def _write_open_clip(model: nn.Module, name: str, folder: Path, format: str) -> dict[str, Any]:
    save_config(model, name, folder)
    if format == "open_clip":
        save_weights(model, folder / OPEN_CLIP_WEIGHTS)
        return {"weights": OPEN_CLIP_WEIGHTS}
    # Tensors alone, which torch.load(weights_only=True) reads.
    state = {key: value.detach().cpu().contiguous().clone() for key, value in model.state_dict().items()}
    torch.save({"state_dict": state}, folder / OPEN_CLIP_PT)
    # A name that open_clip does not know needs its config, as a file of that name.
    resolved = resolve_model(name)
    plain = "retriever" if has_own_weights(resolved) else resolved
    config = folder / f"{plain}.json"
    config.write_text(json.dumps(open_clip.get_model_config(resolved), indent=1), encoding="utf-8")
    return {"weights": OPEN_CLIP_PT, "name": plain, "config": config.name}


def _metrics(run: Run, place: str) -> dict[str, Any]:
    manifest = run.manifest(f"{place}/metrics") or {}
    found: dict[str, Any] = manifest.get("metrics", {})
    return found
