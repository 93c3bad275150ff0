"""The retriever: any open_clip dual encoder, as a function from pictures and texts to unit vectors."""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np
import open_clip
import torch
from open_clip.transform import PreprocessCfg, image_transform_v2
from PIL import Image
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torchvision import transforms

from repair_ray.engines.retriever import PACKAGED_MODELS, RetrieverError, RetrieverSpec, has_own_weights, is_file

OPEN_CLIP_CONFIG = "open_clip_config.json"


def build_model(spec: RetrieverSpec, device: str = "cpu", seed: int = 0) -> nn.Module:
    """Build an open_clip model, with its weights when the spec names any.

    Checkpoints are `.safetensors` or `.pt` (loaded with `weights_only=True`); pixels are prepared as the
    `open_clip_config.json` beside a checkpoint says, where there is one. Without weights the initialisation is drawn
    from `seed`.

    Raises:
        RetrieverError: unknown model, tag or file, or a checkpoint that does not fit the model.
    """
    name = resolve_model(spec.model)
    torch.manual_seed(seed)
    file = Path(spec.weights) if spec.weights and spec.weights != name and is_file(spec.weights) else None
    try:
        with _quiet_without_tag() if file is not None or spec.weights is None else contextlib.nullcontext():
            model = open_clip.create_model(
                name,
                pretrained=None if file or spec.weights == name else spec.weights,
                load_weights=spec.weights is not None and file is None,
                precision=spec.precision,
                device=device,
                output_dict=True,
                force_preprocess_cfg=_preprocessing_of(file) if file else None,
            )
        if file:
            _load(model, file)
    except RetrieverError:
        raise
    except Exception as error:
        raise RetrieverError(f"cannot build retriever {spec.model!r} with weights {spec.weights!r}: {error}") from error
    return cast(nn.Module, model)


@contextlib.contextmanager
def _quiet_without_tag() -> Iterator[None]:
    """Without open_clip's warning that there is no pretrained weight, which is so until the file is loaded.

    Only this record, on the root logger, where open_clip puts it: other threads go on logging.
    """

    def other(record: logging.LogRecord) -> bool:
        return not record.getMessage().startswith("No pretrained weights loaded")

    logging.root.addFilter(other)
    try:
        yield
    finally:
        logging.root.removeFilter(other)


def resolve_model(model: str) -> str:
    """Turn a model name or the path of a model-config JSON into a name that open_clip knows.

    Raises:
        RetrieverError: neither a known name nor a readable model config.
    """
    packaged = PACKAGED_MODELS / f"{model}.json"
    path = packaged if packaged.is_file() else Path(model)
    if path.suffix == ".json":
        if not path.is_file():
            raise RetrieverError(f"no model config at {path}")
        open_clip.add_model_config(path)
        if path.stem not in open_clip.list_models():
            raise RetrieverError(f"{path} is no open_clip model config: embed_dim, vision_cfg and text_cfg are needed")
        return path.stem
    if model.startswith("local-dir:") and not (Path(model.removeprefix("local-dir:")) / OPEN_CLIP_CONFIG).is_file():
        raise RetrieverError(f"retriever.model {model!r}: there is no {OPEN_CLIP_CONFIG} in that folder")
    if not has_own_weights(model) and model not in open_clip.list_models():
        raise RetrieverError(
            f"unknown retriever.model {model!r}: take a name of open_clip.list_models(), the path of a model-config "
            "JSON, hf-hub:org/name or local-dir:/folder"
        )
    return model


def _load(model: nn.Module, path: Path) -> None:
    if not path.is_file():
        raise RetrieverError(f"no checkpoint at {path}")
    state: Any = (
        load_file(path) if path.suffix == ".safetensors" else torch.load(path, map_location="cpu", weights_only=True)
    )
    state = state.get("state_dict", state)
    state = {key.removeprefix("module."): value for key, value in state.items()}
    try:
        model.load_state_dict(state)
    except RuntimeError as error:
        raise RetrieverError(f"checkpoint {path} does not fit the model: {str(error)[:500]}") from None


def check_tag(model: str, tag: str) -> None:
    """Raises `RetrieverError` for a pretrained tag that the model lacks, or whose activation is another."""
    name = resolve_model(model)
    tags = open_clip.list_pretrained_tags_by_model(name)
    if tag not in tags:
        known = ", ".join(tags) or "none"
        raise RetrieverError(f"retriever.pretrained={tag}: no file, and no tag of {model}; its tags: {known}")
    ours = bool((open_clip.get_model_config(name) or {}).get("quick_gelu"))
    theirs = bool((open_clip.get_pretrained_cfg(name, tag) or {}).get("quick_gelu"))
    if ours != theirs:
        # open_clip only warns, and each feature would come from the wrong activation.
        other = f"{model}-quickgelu" if theirs else model.removesuffix("-quickgelu")
        raise RetrieverError(
            f"retriever.pretrained={tag} was trained with{'' if theirs else 'out'} QuickGELU: "
            f"set retriever.model={other}"
        )


def save_config(model: nn.Module, name: str, folder: Path) -> None:
    """Write `open_clip_config.json`: with the weights beside it, `local-dir:<folder>` is a whole open_clip model."""
    visual: Any = model.visual
    config = {
        "model_cfg": open_clip.get_model_config(resolve_model(name)),
        "preprocess_cfg": getattr(visual, "preprocess_cfg", {}),
    }
    (folder / OPEN_CLIP_CONFIG).write_text(json.dumps(config, indent=1), encoding="utf-8")


def _preprocessing_of(checkpoint: Path) -> dict[str, Any] | None:
    path = checkpoint.parent / OPEN_CLIP_CONFIG
    if not path.is_file():
        return None
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")).get("preprocess_cfg") or {})
    except (OSError, ValueError, AttributeError) as error:
        raise RetrieverError(f"{path} is not an open_clip config: {error}") from None


def save_weights(model: nn.Module, path: Path) -> None:
    """Write the weights as safetensors that `open_clip.create_model(name, pretrained=path)` loads."""
    save_state(model.state_dict(), path)


def save_state(state: Mapping[str, Tensor], path: Path) -> None:
    """Write weights by open_clip's names as safetensors."""
    save_file({key: value.detach().cpu().contiguous().clone() for key, value in state.items()}, path)


class Preprocess:
    """Pictures and texts as one model wants them: uint8 pixels `[3, H, W]` and int64 tokens `[L]`.

    Pixels stay uint8 until `normalise`, so that they can be cached and moved at a quarter of the size; the result
    equals open_clip's own evaluation transform.
    """

    def __init__(self, model: nn.Module, name: str) -> None:
        visual: Any = model.visual
        config = PreprocessCfg(**getattr(visual, "preprocess_cfg", {}))
        steps = image_transform_v2(config, is_train=False).transforms
        if not isinstance(steps[-1], transforms.Normalize):
            raise RetrieverError(f"{name}: open_clip's transform does not end with Normalize")
        self._pixels = transforms.Compose(steps[:-1])
        self._mean = torch.tensor(config.mean).view(1, 3, 1, 1)
        self._std = torch.tensor(config.std).view(1, 3, 1, 1)
        self.tokenizer: Any = open_clip.get_tokenizer(resolve_model(name))
        self.context_length = int(self.tokenizer.context_length)

    def pixels(self, image: Image.Image) -> Tensor:
        """Resize and crop an RGB picture: uint8 `[3, H, W]`."""
        return cast(Tensor, self._pixels(image).mul(255).round().to(torch.uint8))

    def normalise(self, pixels: Tensor) -> Tensor:
        """uint8 `[N, 3, H, W]` to float32, with the model's mean and deviation."""
        return (pixels.float() / 255 - self._mean.to(pixels.device)) / self._std.to(pixels.device)

    def tokens(self, texts: list[str]) -> Tensor:
        """int64 `[N, L]`; a text past the context is cut and keeps its end-of-text token."""
        return cast(Tensor, self.tokenizer(texts))

    def truncated(self, text: str) -> bool:
        """Whether part of the text lies beyond the context."""
        return len(self._ids(text)) > self.context_length

    def sees_change(self, source: str, edited: str) -> bool:
        """Whether all of what tells `edited` from `source` lies within the context."""
        before, after = self._ids(source), self._ids(edited)
        if len(after) <= self.context_length:
            return True
        pairs = enumerate(zip(reversed(before), reversed(after), strict=False))
        common = next((i for i, (a, b) in pairs if a != b), min(len(before), len(after)))
        # The last place of a cut text is its end token's.
        return len(after) - common <= self.context_length - 1

    def _ids(self, text: str) -> list[int]:
        """Token ids with start and end tokens, before any cut."""
        if hasattr(self.tokenizer, "encode"):
            return [0, *self.tokenizer.encode(text), 0]
        # open_clip's wrappers of Hugging Face tokenizers: their own adds the special tokens itself.
        return list(self.tokenizer.tokenizer(text)["input_ids"])


class Encoder:
    """A frozen retriever that embeds pictures and texts as float32 unit vectors `[N, D]`."""

    def __init__(self, spec: RetrieverSpec, device: str = "cpu", batch_size: int = 128) -> None:
        self.model = build_model(spec, device).eval().requires_grad_(False)
        self.preprocess = Preprocess(self.model, spec.model)
        self.device = device
        self.batch_size = batch_size
        self._dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(spec.precision, torch.float32)

    def truncated(self, text: str) -> bool:
        """Whether part of the text lies beyond the context."""
        return self.preprocess.truncated(text)

    def encode_images(self, images: list[Image.Image]) -> np.ndarray:
        """Embed RGB pictures."""
        return self.encode_pixels([self.preprocess.pixels(image) for image in images])

    @torch.inference_mode()
    def encode_pixels(self, pixels: list[Tensor]) -> np.ndarray:
        """Embed pictures that `preprocess.pixels` has prepared."""
        batches = [pixels[i : i + self.batch_size] for i in range(0, len(pixels), self.batch_size)]
        model: Any = self.model
        return self._stack(model.encode_image(self.model_input(batch), normalize=True) for batch in batches)

    def model_input(self, pixels: list[Tensor]) -> Tensor:
        """Prepared pictures as one batch on the model's device, in its type."""
        return self.preprocess.normalise(torch.stack(pixels).to(self.device)).to(self._dtype)

    @torch.inference_mode()
    def encode_texts(self, texts: list[str]) -> np.ndarray:
        """Embed texts."""
        batches = [texts[i : i + self.batch_size] for i in range(0, len(texts), self.batch_size)]
        model: Any = self.model
        return self._stack(
            model.encode_text(self.preprocess.tokens(batch).to(self.device), normalize=True) for batch in batches
        )

    def _stack(self, features: Any) -> np.ndarray:
        rows = [part.float().cpu() for part in features]
        return torch.cat(rows).numpy() if rows else np.zeros((0, 0), np.float32)
