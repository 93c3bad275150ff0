"""What identifies a retriever. Apart from `encoder`, so that naming one loads no model library."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

SENTENCES = "sentence-transformers:"
PACKAGED_MODELS = Path(__file__).parent / "models"


class RetrieverError(Exception):
    """The retriever cannot be built; the message names the model or file and what to do."""


@dataclass(frozen=True)
class RetrieverSpec:
    """What identifies a retriever.

    `weights` is an open_clip pretrained tag or a file; None: random weights. For a model that has its own
    (`has_own_weights`) it is the model's name, or a file.
    """

    model: str
    weights: str | None = None
    precision: str = "fp32"


def named_spec(model: str, pretrained: str | None, precision: str = "fp32") -> RetrieverSpec:
    """The retriever that a model's name and its `pretrained` name; a model with weights of its own needs no other."""
    own = model if has_own_weights(model) else None
    return RetrieverSpec(model, pretrained or own, precision)


def check_named(model: str, pretrained: str | None) -> None:
    """Raises `RetrieverError` for an unknown model, and for weights that are not there; builds nothing."""
    if pretrained is None and is_packaged(model):
        return
    # Only now, as open_clip takes seconds to import.
    from repair_ray.engines.encoder import check_tag, resolve_model

    resolve_model(model)
    if pretrained is None:
        return
    if has_own_weights(model):
        raise RetrieverError(f"retriever.pretrained is set, and retriever.model {model} has its own weights: unset one")
    if not is_file(pretrained):
        check_tag(model, pretrained)
    elif not Path(pretrained).is_file():
        raise RetrieverError(f"retriever.pretrained: no checkpoint at {pretrained}")


def weights_identity(weights: str | None) -> str | None:
    """What tells weights that a config names apart: the tag, or the file's content as `sha256:<16 hex digits>`."""
    if weights is None or not Path(weights).is_file():
        return weights
    with open(weights, "rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()[:16]}"


def has_own_weights(model: str) -> bool:
    """Whether the model's name says where its weights lie (`hf-hub:org/name`, `local-dir:/folder`)."""
    return model.startswith(("hf-hub:", "local-dir:"))


def sees_texts_only(model: str) -> bool:
    """Whether the model is a text encoder of sentence-transformers (`sentence-transformers:NAME`): a teacher only."""
    return model.startswith(SENTENCES)


def is_packaged(model: str) -> bool:
    """Whether the model is one of this package's own small ones."""
    return (PACKAGED_MODELS / f"{model}.json").is_file()


def is_file(weights: str) -> bool:
    """Whether `weights` is meant as a checkpoint file rather than as an open_clip pretrained tag."""
    return weights.endswith((".safetensors", ".pt", ".pth", ".bin")) or Path(weights).exists()
