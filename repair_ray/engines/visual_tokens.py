"""Visual tokens of pictures in the joint space: patches, or the whole picture as the one token."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from open_clip.transformer import VisionTransformer
from PIL import Image
from torch import Tensor

from repair_ray.engines.encoder import Encoder
from repair_ray.engines.retriever import RetrieverError

TokenKind = Literal["patches", "whole"]


class VisualTokens:
    """A retriever's visual tokens, float32 unit vectors `[N, T, D]`.

    `patches`: the last layer's patch tokens through the layer norm and projection that the class token takes (ours;
    as open_clip's own `forward_intermediates` gives them, and as MaskCLIP, arXiv 2112.01071, reads a CLIP tower
    densely). Only open_clip's own vision transformers have such tokens: towers that pool by attention, residual
    networks and timm's do not.
    `whole`: the retriever's picture feature, T = 1.

    Raises:
        RetrieverError: the tower has no patch tokens in the joint space; says what to set.
    """

    def __init__(self, encoder: Encoder, kind: TokenKind, name: str = "this retriever") -> None:
        visual: Any = encoder.model.visual
        if kind == "patches" and (not isinstance(visual, VisionTransformer) or visual.attn_pool is not None):
            raise RetrieverError(
                f"the vision tower of {name} ({type(visual).__name__}) has no patch tokens in the joint space: "
                "set negatives.tokens=whole"
            )
        self._encoder = encoder
        self._kind = kind

    @torch.inference_mode()
    def __call__(self, images: list[Image.Image]) -> np.ndarray:
        """Tokens of RGB pictures; `[0, 0, 0]` for none."""
        if not images:
            return np.zeros((0, 0, 0), np.float32)
        if self._kind == "whole":
            return self._encoder.encode_images(images)[:, None]
        size = self._encoder.batch_size
        return np.concatenate([self._patches(images[i : i + size]) for i in range(0, len(images), size)])

    def _patches(self, images: list[Image.Image]) -> np.ndarray:
        visual: Any = self._encoder.model.visual
        found = visual.forward_intermediates(
            self._encoder.model_input([self._encoder.preprocess.pixels(image) for image in images]),
            indices=1,
            normalize_intermediates=True,
            intermediates_only=True,
            output_fmt="NLC",
        )
        tokens: Tensor = found["image_intermediates"][-1]
        if visual.proj is not None:
            tokens = tokens @ visual.proj
        return F.normalize(tokens.float(), dim=-1).cpu().numpy()
