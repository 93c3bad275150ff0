"""The retriever: any open_clip dual encoder, as a function from pictures and texts to unit vectors."""

from __future__ import annotations

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

from repair_ray.engines.retriever import RetrieverError, RetrieverSpec, is_file

PACKAGED_MODELS = Path(__file__).parent / "models"


def build_model(spec: RetrieverSpec, device: str = "cpu", seed: int = 0) -> nn.Module:
    """Build an open_clip model, with its weights when the spec names any.

    Checkpoints are `.safetensors` or `.pt` (loaded with `weights_only=True`). Without weights the initialisation is
    drawn from `seed`.

    Raises:
        RetrieverError: unknown model, tag or file, or a checkpoint that does not fit the model.
    """
    name = resolve_model(spec.model)
    torch.manual_seed(seed)
    try:
        model = open_clip.create_model(name, precision=spec.precision, device=device, output_dict=True)
        if spec.weights is None:
            pass
        elif is_file(spec.weights):
            _load(model, Path(spec.weights))
        else:
            model = open_clip.create_model(
                name, pretrained=spec.weights, precision=spec.precision, device=device, output_dict=True
            )
    except RetrieverError:
        raise
    except Exception as error:
        raise RetrieverError(f"cannot build retriever {spec.model!r} with weights {spec.weights!r}: {error}") from error
    return cast(nn.Module, model)


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
    if model not in open_clip.list_models() and "/" not in model and ":" not in model:
        raise RetrieverError(
            f"unknown retriever.model {model!r}: take a name of open_clip.list_models() or a JSON path"
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


def save_weights(model: nn.Module, path: Path) -> None:
    """Write the weights as safetensors that `open_clip.create_model(name, pretrained=path)` loads."""
    state = {key: value.detach().cpu().contiguous().clone() for key, value in model.state_dict().items()}
    save_file(state, path)


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

    def length(self, text: str) -> int:
        """Tokens of a text with its start and end tokens, before any cut."""
        if hasattr(self.tokenizer, "encode"):
            return len(self.tokenizer.encode(text)) + 2
        # open_clip's wrappers of Hugging Face tokenizers: their own adds the special tokens itself.
        return len(self.tokenizer.tokenizer(text)["input_ids"])

    def truncated(self, text: str) -> bool:
        """Whether part of the text lies beyond the context."""
        return self.length(text) > self.context_length


class Encoder:
    """A frozen retriever that embeds pictures and texts as float32 unit vectors `[N, D]`."""

    def __init__(self, spec: RetrieverSpec, device: str = "cpu", batch_size: int = 128) -> None:
        self.model = build_model(spec, device).eval().requires_grad_(False)
        self.preprocess = Preprocess(self.model, spec.model)
        self.device = device
        self.batch_size = batch_size
        self._dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(spec.precision, torch.float32)

    @torch.inference_mode()
    def encode_images(self, images: list[Image.Image]) -> np.ndarray:
        """Embed RGB pictures."""
        pixels = [self.preprocess.pixels(image) for image in images]
        batches = [pixels[i : i + self.batch_size] for i in range(0, len(pixels), self.batch_size)]
        model: Any = self.model
        return self._stack(
            model.encode_image(
                self.preprocess.normalise(torch.stack(batch).to(self.device)).to(self._dtype), normalize=True
            )
            for batch in batches
        )

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
