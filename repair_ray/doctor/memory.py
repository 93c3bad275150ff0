"""Memory: do the weights of each model fit where the config puts them?

Weights alone: what a forward pass takes comes on top.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from safetensors import safe_open

from repair_ray.config import Config
from repair_ray.doctor.cluster import Node
from repair_ray.doctor.models import PIPELINE_FILE, Place, pipeline_name
from repair_ray.doctor.needs import language_pool, languages
from repair_ray.doctor.text import size
from repair_ray.report.findings import Finding
from repair_ray.stages.pools import pool_of

BYTES = {"fp32": 4, "bf16": 2, "fp16": 2}
# A weight in fp32, its gradient, and both moments of AdamW.
TRAINING_BYTES = 16
# Of the memory that is there; above this, little is left for anything else.
TIGHT = 0.8


@dataclass(frozen=True)
class Load:
    """Weights that `copies` processes hold, `weights` bytes each; `share` of a GPU for each, 0 on the CPU."""

    name: str
    weights: int
    copies: int
    share: float
    what: str = "weights alone"


def check_memory(
    config: Config, nodes: Sequence[Node], places: Sequence[Place], parameters: int | None
) -> list[Finding]:
    """One finding for each model of the run.

    Args:
        places: what `find_models` found. parameters: of the retriever; None where that is not known.
    """
    retriever = config.retriever
    if parameters is None:
        unknown = f"{retriever.model}: the size is unknown until it is downloaded"
        found = [Finding("memory", "skipped", f"retriever: {unknown}")]
    else:
        found = [fits(load, nodes) for load in _of_retriever(config, parameters)]
    for place in places:
        if place.key.endswith(".lora"):
            continue
        load = None if place.folder is None else _load_of(config, place, place.folder)
        if load is None:
            fact = f"{place.key}: {place.name}: the size is unknown until it is downloaded"
            found.append(Finding("memory", "skipped", fact))
        else:
            found.append(fits(load, nodes))
    return found


def fits(load: Load, nodes: Sequence[Node]) -> Finding:
    """Holds a load against the GPUs of the nodes, or against the memory that Ray gives to workers there."""
    each = f"{load.name}: {size(load.weights)} ({load.what})"
    if load.share:
        gpus = [memory for node in nodes for memory in node.gpu_memory]
        if not gpus:
            return Finding("memory", "skipped", f"{each}; the memory of the GPUs is not known")
        smallest, largest = (int(limit(gpus) * min(1.0, load.share)) for limit in (min, max))
        some = "" if load.share >= 1 else f"{load.share:g} of "
        fact = f"{each} in {some}a GPU of {size(smallest / min(1.0, load.share))}"
        return _judged(fact, load.weights, smallest, largest, "more GPUs for each copy, or a smaller model")
    if not nodes:
        return Finding("memory", "skipped", f"{each}; the memory of the cluster is not known")
    largest_node = max(node.memory for node in nodes)
    total = sum(node.memory for node in nodes)
    fact = f"{each}, {load.copies} {'copy' if load.copies == 1 else 'copies'} in the {size(total)} of all nodes"
    # Of all copies together, and of one on one node, whichever is worse.
    part = max(load.weights * load.copies / total, load.weights / largest_node)
    return _judged(fact, part, 1.0, 1.0, "fewer actors, a smaller model, or larger nodes")


def _judged(fact: str, need: float, smallest: float, largest: float, advice: str) -> Finding:
    if need > largest:
        return Finding("memory", "failed", f"{fact}: too large", advice)
    if need > TIGHT * smallest:
        return Finding("memory", "warning", f"{fact}: tight", advice)
    return Finding("memory", "ok", fact)


def _of_retriever(config: Config, parameters: int) -> list[Load]:
    pool, training = config.pool, config.training
    weights = parameters * BYTES[config.retriever.precision]
    workers = max(training.workers, config.base.workers if config.base else 0)
    what = "weights, gradients and AdamW's moments alone"
    return [
        Load("retriever that embeds", weights, pool.actors, pool.num_gpus),
        Load("retriever in training", parameters * TRAINING_BYTES, workers, float(training.use_gpu), what),
    ]


def _load_of(config: Config, place: Place, folder: Path) -> Load | None:
    if place.key == "edit.diffusion.model":
        diffusion, pool = config.edit.diffusion, pool_of(config, "edit").pool
        loaded = pipeline_bytes(folder, BYTES[diffusion.dtype])
        # What is offloaded waits in the memory of the node.
        share = pool.num_gpus if diffusion.offload == "none" else 0.0
        return Load(pipeline_name(config), loaded, pool.actors, share) if loaded else None
    language = languages(config)[place.key.removesuffix(".model")]
    weights = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
    pool = language_pool(language)
    return Load(place.name, weights // language.engine.workers, pool.actors, pool.num_gpus) if weights else None


def pipeline_bytes(folder: Path, itemsize: int) -> int:
    """What the parts of a diffusers pipeline take once loaded with `itemsize` bytes a value, read from their headers.

    Only files of the parts that `model_index.json` names count, and none of another variant (`model.fp16.safetensors`).
    """
    parts = json.loads((folder / PIPELINE_FILE).read_text(encoding="utf-8"))
    values = 0
    for name in (name for name, kind in parts.items() if isinstance(kind, list)):
        files = sorted((folder / name).glob("*.safetensors"))
        plain = [file for file in files if ".fp16." not in file.name and ".bf16." not in file.name]
        for file in plain or files:
            with safe_open(file, framework="numpy") as tensors:
                values += sum(math.prod(tensors.get_slice(key).get_shape()) for key in tensors.keys())  # noqa: SIM118
    return values * itemsize
