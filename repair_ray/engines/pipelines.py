"""Which diffusion pipelines edit pictures. Apart from `diffusion`, so that naming one needs no diffusers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Pipeline:
    """One editor's pipeline class, its published weights, and how its authors run it."""

    name: str
    model: str
    steps: int
    guidance: float
    arguments: dict[str, Any] = field(default_factory=dict)


PIPELINES: dict[str, Pipeline] = {
    # Distilled: four steps, and no guidance beyond 1.
    "flux2-klein": Pipeline("Flux2KleinPipeline", "black-forest-labs/FLUX.2-klein-4B", 4, 1.0),
    "flux2-klein-9b": Pipeline("Flux2KleinPipeline", "black-forest-labs/FLUX.2-klein-9B", 4, 1.0),
    "flux2": Pipeline("Flux2Pipeline", "black-forest-labs/FLUX.2-dev", 50, 4.0),
    "flux-kontext": Pipeline("FluxKontextPipeline", "black-forest-labs/FLUX.1-Kontext-dev", 28, 2.5),
    "instruct-pix2pix": Pipeline(
        "StableDiffusionInstructPix2PixPipeline",
        "timbrooks/instruct-pix2pix",
        20,
        7.5,
        {"image_guidance_scale": 1.5},
    ),
}
