"""The image editing stage against a plain loop over the same diffusers pipeline, of tiny random parts.

Ours writes the instruction, reads the source from its shard, edits, judges what came out, marks it as synthetic, writes
it into a shard, and hands the row on; it is counted from the begin of its actor's first batch to the end of the last
one. The loop only calls the pipeline, on pictures and instructions that are ready. Both make the same pictures.
"""

from __future__ import annotations

import io
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from PIL import Image

from benchmarks.clocked import CLOCK, ClockedMake, read_batches, replaced, window
from benchmarks.rows import Row, Skipped
from benchmarks.stream import instructed
from benchmarks.turns import Settings, apart, in_turns
from repair_ray import tables
from repair_ray.config import Config, FaultConfig
from repair_ray.data.access import image_store
from repair_ray.run import Recipe, Run
from repair_ray.stages import candidates as stage
from repair_ray.stages.audit import audit
from repair_ray.stages.candidates import DRAFTS, candidate_arguments
from repair_ray.stages.graph import Step, run_graph, start_ray
from repair_ray.stages.pools import pool_of
from tests.fixtures import tiny_models
from tests.integration.language_run import config, prepare

MARK = 0.95
OURS, PEER = "edit stage", "diffusers loop"
EDITOR = "flux2-klein"
ARGUMENTS = {"text_encoder_out_layers": (1,), "max_sequence_length": 32}
# Of a mean difference, of 255: what JPEG may do to noise.
JPEG = 12.0


@dataclass(frozen=True)
class Sizes:
    rows: int
    steps: int
    side: int
    block: int


FULL = Sizes(64, 28, 256, 16)
QUICK = Sizes(8, 2, 64, 4)


def rows(settings: Settings) -> Iterator[Row]:
    """Edits a second."""
    if find_spec("diffusers") is None:
        raise Skipped("diffusers is not installed; run it in an environment of requirements-models.txt")
    sizes = QUICK if settings.quick else FULL
    start_ray()
    ours = Ours(settings, sizes)
    plain = Plain(ours, settings.threads)
    turns = in_turns({PEER: plain.turn, OURS: ours.turn}, settings.pairs)
    check(ours.pictures(), plain.made)
    note = f"{sizes.steps} steps, sources of {sizes.side} px, {settings.threads} threads; the same pictures"
    yield turns.row(f"edit {EDITOR}", OURS, PEER, sizes.rows, "edits/s", note, mark=MARK)
    yield turns.memory_row(f"edit {EDITOR}", OURS, PEER)


def check(ours: dict[str, np.ndarray], plain: dict[str, np.ndarray]) -> None:
    """Both made the same pictures, but for the JPEG that ours keeps."""
    assert ours.keys() == plain.keys()
    for name, picture in plain.items():
        difference = float(np.abs(picture.astype(np.float32) - ours[name]).mean())
        assert difference < JPEG, f"{name} is another picture: {difference:.1f} of 255 in the mean"
