"""Models: are the retriever, the language models and the editor where the config says, and how large are they?

Nothing is downloaded.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

from repair_ray.config import Config
from repair_ray.doctor.needs import diffuses, languages
from repair_ray.engines.retriever import RetrieverError, is_packaged
from repair_ray.report.findings import Finding
from repair_ray.run import RunError

LANGUAGE_FILE = "config.json"
PIPELINE_FILE = "model_index.json"


@dataclass(frozen=True)
class Place:
    """Where a model lies. `folder` is None where it lies on no disk yet; `name` is what the config says."""

    key: str
    name: str
    folder: Path | None


def check_retriever(config: Config) -> Finding:
    """The run's own check of `retriever`, and whether a pretrained tag's weights are in the cache."""
    from repair_ray.finetune import check_retriever

    retriever = config.retriever
    try:
        check_retriever(config)
    except (RetrieverError, RunError) as error:
        return Finding("retriever", "failed", str(error), "correct the retriever section")
    if config.base is not None:
        return Finding("retriever", "ok", f"{retriever.model}, trained from scratch in the run")
    repository, files = _tag(config)
    if repository is None:
        return Finding("retriever", "ok", f"{retriever.model} with {retriever.pretrained or 'its own weights'}")
    if any(_cached(repository, file) for file in files):
        return Finding("retriever", "ok", f"{retriever.model}: the weights of {repository} are in the hub's cache")
    return _not_cached("retriever", repository)


def find_models(config: Config) -> tuple[list[Finding], list[Place]]:
    """Findings about the vLLM models and the diffusion pipeline of a run, and where each of them lies."""
    named: list[tuple[str, str, str]] = []
    for key, language in languages(config).items():
        if language.backend == "vllm" and language.model:
            named.append((f"{key}.model", language.model, LANGUAGE_FILE))
            if language.engine.lora:
                named.append((f"{key}.engine.lora", language.engine.lora, "adapter_config.json"))
    if diffuses(config):
        named.append(("edit.diffusion.model", pipeline_name(config), PIPELINE_FILE))
    findings, places = [], []
    for key, name, file in named:
        finding, folder = locate(key, name, file)
        findings.append(finding)
        places.append(Place(key, name, folder))
    return findings, places


def pipeline_name(config: Config) -> str:
    """The hub name or folder of the run's diffusion pipeline: the config's, or the editor's own."""
    from repair_ray.engines.pipelines import PIPELINES

    return config.edit.diffusion.model or PIPELINES[config.edit.image_editor].model


def locate(key: str, name: str, file: str) -> tuple[Finding, Path | None]:
    """Whether a folder or hub name holds a model, told by `file`; and its folder where it lies on this machine."""
    from huggingface_hub.errors import HFValidationError

    folder = Path(name)
    if folder.is_dir():
        if (folder / file).is_file():
            return Finding(key, "ok", f"{name}: a folder with {file}"), folder
        return Finding(key, "failed", f"{name}: there is no {file} in that folder", f"correct {key}"), None
    try:
        cached = _cached(name, file)
    except HFValidationError:
        return Finding(key, "failed", f"{name}: no such folder, and no hub name", f"correct {key}"), None
    if cached is not None:
        return Finding(key, "ok", f"{name}: in the hub's cache of this machine"), cached.parent
    return _not_cached(key, name), None


def parameters(config: Config) -> int | None:
    """How many parameters the retriever has, built without memory for them; None where its config is on the hub."""
    import open_clip
    import torch

    from repair_ray.engines.encoder import resolve_model

    if config.retriever.model.startswith("hf-hub:"):
        return None
    name = resolve_model(config.retriever.model)
    text = (open_clip.get_model_config(name) or {}).get("text_cfg") or {}
    if text.get("hf_model_name"):
        return None
    root = logging.getLogger()
    level = root.level
    # open_clip says that it loads no weights, which is what is wanted.
    root.setLevel(logging.ERROR)
    try:
        with torch.device("meta"):
            model = open_clip.create_model(name, load_weights=False, device="meta")
    finally:
        root.setLevel(level)
    return sum(value.numel() for value in model.parameters())


def _tag(config: Config) -> tuple[str | None, tuple[str, ...]]:
    """The hub's repository and files of the weights that the retriever is to have; None where it needs no hub."""
    import open_clip
    from open_clip.constants import HF_SAFE_WEIGHTS_NAME, HF_WEIGHTS_NAME

    from repair_ray.engines.encoder import resolve_model
    from repair_ray.engines.retriever import has_own_weights, is_file

    model, weights = config.retriever.model, config.retriever.pretrained
    files = (HF_SAFE_WEIGHTS_NAME, HF_WEIGHTS_NAME)
    if model.startswith("hf-hub:"):
        return model.removeprefix("hf-hub:").partition("@")[0], files
    if weights is None or is_file(weights) or has_own_weights(model) or is_packaged(model):
        return None, ()
    repository, _, file = str(
        (open_clip.get_pretrained_cfg(resolve_model(model), weights) or {}).get("hf_hub", "")
    ).rpartition("/")
    return repository or None, (*([file] if file else []), *files)


def _cached(repository: str, file: str) -> Path | None:
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(repository, file)
    return Path(found) if isinstance(found, str) else None


def _not_cached(key: str, name: str) -> Finding:
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        fact = f"{name}: not in the hub's cache of this machine, and HF_HUB_OFFLINE is set"
        return Finding(key, "failed", fact, f"download it first (hf download {name}), or name a folder")
    fact = f"{name}: not in the hub's cache of this machine; the stage that needs it downloads it"
    return Finding(key, "warning", fact, f"hf download {name} beforehand, on every node")
