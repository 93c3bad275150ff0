"""Image editors on diffusers: one picture a call, from its own seed.

A list of pictures means several references of one edit in Flux.2, never a batch, so nothing is batched here: what comes
out depends on picture, instruction and seed alone. More pictures at a time are more actors.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import diffusers
import numpy as np
import torch
from PIL import Image

from repair_ray.config import DiffusionConfig
from repair_ray.data.images import ImageProblem
from repair_ray.engines.editors import EditError, Read
from repair_ray.engines.pipelines import PIPELINES
from repair_ray.engines.provenance import synthetic_jpeg

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
# Of 255: what is darker everywhere is black, what differs less from its source in the mean is unchanged.
BLACK = 4
UNCHANGED = 0.25
# Flux.2's own limits for a reference.
MIN_SIDE = 64
MAX_ASPECT = 8
# Why `load_rgb` refuses a picture that may be fine: it is over a limit that the run sets.
OVER_LIMIT = ("bomb", "too_large")
# Half precision that overflows comes out as NaN, or black.
PRECISION = "if many edits end so, set edit.diffusion.dtype=fp32"


class DiffusersEditor:
    """An `ImageEditor` that runs a diffusers pipeline.

    The edited picture has the size of its source, and says in its metadata that it is synthetic.
    """

    def __init__(self, name: str, config: DiffusionConfig, read: Read, device: str = "cpu") -> None:
        """Load the pipeline; `read` decodes the sources.

        Raises:
            ValueError: the pipeline or the safety function cannot be had; the message names the setting.
        """
        self.name = name
        self._read = read
        self._config = config
        self._known = PIPELINES[name]
        self._model = config.model or self._known.model
        self._safety = _hook(config.safety)
        pipeline_class = getattr(diffusers, self._known.name)
        try:
            # Only safetensors: a pickle in a model's folder is not opened.
            pipeline = pipeline_class.from_pretrained(self._model, dtype=DTYPES[config.dtype], use_safetensors=True)
        except (OSError, ValueError) as error:
            raise ValueError(
                f"edit.diffusion.model={self._model}: no {self._known.name} there: {' '.join(str(error).split())[:300]}"
            ) from None
        self._pipeline = _placed(pipeline, config, device)
        self._pipeline.set_progress_bar_config(disable=True)

    def edit(self, image: bytes, instruction: str, seed: int) -> bytes:
        """Edit one encoded picture; returns a JPEG of the same size.

        Raises:
            EditError: the source cannot be read, or what came out is not finite, black, unchanged or refused.
        """
        try:
            source = self._read(image)
        except ImageProblem as problem:
            advice = "; data.max_pixels and data.max_image_mb set the limits" if problem.reason in OVER_LIMIT else ""
            raise EditError(f"the source picture cannot be read: {problem.reason}{advice}") from None
        edited = self._run(source, instruction, seed)
        if edited.size != source.size:
            edited = edited.resize(source.size, Image.Resampling.LANCZOS)
        self._judge(source, edited)
        return synthetic_jpeg(edited, editor=self.name, model=self._model, seed=seed, instruction=instruction)

    def _run(self, source: Image.Image, instruction: str, seed: int) -> Image.Image:
        known, config = self._known, self._config
        shown = _shown(source, config.max_px)
        with torch.inference_mode():
            made = self._pipeline(
                image=shown,
                prompt=instruction,
                num_inference_steps=config.steps or known.steps,
                guidance_scale=known.guidance if config.guidance is None else config.guidance,
                # On the CPU, so that a seed means the same picture on every machine.
                generator=torch.Generator("cpu").manual_seed(seed),
                output_type="np",
                **{**known.arguments, **config.arguments},
            )
        if any(getattr(made, "nsfw_content_detected", None) or ()):
            raise EditError("the pipeline's safety checker refused the edited picture")
        pixels = np.asarray(made.images[0], np.float32)
        if not np.isfinite(pixels).all():
            raise EditError(f"the edited picture has pixels that are not finite; {PRECISION}")
        return Image.fromarray((pixels.clip(0, 1) * 255).round().astype(np.uint8)).convert("RGB")

    def _judge(self, source: Image.Image, edited: Image.Image) -> None:
        before, after = np.asarray(source, np.float32), np.asarray(edited, np.float32)
        if after.max() < BLACK:
            raise EditError(f"the edited picture is black; {PRECISION}")
        if np.abs(before - after).mean() < UNCHANGED:
            raise EditError("the edited picture does not differ from its source")
        refused = self._safety(edited) if self._safety else None
        if refused:
            raise EditError(f"edit.diffusion.safety refused the edited picture: {refused}")


def _shown(source: Image.Image, max_px: int) -> Image.Image:
    """The source in a size that the pipelines take; the edited picture is brought back to the source's."""
    width, height = source.size
    if max(width, height) > MAX_ASPECT * min(width, height):
        raise EditError(f"the source picture is more than {MAX_ASPECT} times as long as wide; crop it")
    scale = max(min(1.0, max_px / max(width, height)), MIN_SIDE / min(width, height))
    if scale == 1.0:
        return source
    return source.resize((round(width * scale), round(height * scale)), Image.Resampling.LANCZOS)


def _placed(pipeline: Any, config: DiffusionConfig, device: str) -> Any:
    denoiser = "transformer" if hasattr(pipeline, "transformer") else "unet"
    if config.attention:
        getattr(pipeline, denoiser).set_attention_backend(config.attention)
    if config.offload == "model":
        pipeline.enable_model_cpu_offload(device=device)
    elif config.offload == "sequential":
        pipeline.enable_sequential_cpu_offload(device=device)
    else:
        pipeline = pipeline.to(device)
    if config.compile:
        setattr(pipeline, denoiser, torch.compile(getattr(pipeline, denoiser), dynamic=True))
    return pipeline


def _hook(name: str | None) -> Callable[[Image.Image], str | None] | None:
    if name is None:
        return None
    module, _, function = name.partition(":")
    try:
        found: Callable[[Image.Image], str | None] = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"edit.diffusion.safety={name}: {error}; give package.module:function") from None
    return found
