"""The image editing stage against a plain loop over the same diffusers pipeline, of tiny random parts.

Ours writes the instruction, reads the source from its shard, edits, judges what came out, marks it as synthetic, writes
it into a shard, and hands the row on; it is counted from the begin of its actor's first batch to the end of the last
one. The loop only calls the pipeline, on pictures and instructions that are ready. Both make the same pictures.
"""

from __future__ import annotations

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

from benchmarks.clocked import CLOCK, ClockedMake, read_batches, window
from benchmarks.rows import Row, Skipped
from benchmarks.stream import instructed
from benchmarks.turns import Settings, apart, in_turns
from repair_ray import tables
from repair_ray.config import Config, FaultConfig
from repair_ray.data.access import image_store
from repair_ray.engines.language import Verdict
from repair_ray.run import Recipe, Run
from repair_ray.stages.audit import audit
from repair_ray.stages.candidates import DRAFTS, candidate_arguments
from repair_ray.stages.cases import language_case, mismatches_of
from repair_ray.stages.graph import Step, run_graph, start_ray
from repair_ray.stages.pools import cpu_pool, pool_of
from repair_ray.stages.questions import RowLanguage
from repair_ray.synthesis.triplet import TakeFirst
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


class Ours:
    """`MakeCandidates` in a graph, on one actor with all threads."""

    def __init__(self, settings: Settings, sizes: Sizes) -> None:
        self.sizes, self.turns = sizes, 0
        self.pipeline = tiny_models.flux2_klein(settings.folder / "pipeline")
        diffusion = {"model": str(self.pipeline), "dtype": "fp32", "steps": sizes.steps, "arguments": ARGUMENTS}
        pool = {"num_cpus": settings.threads, "rows_per_block": sizes.block}
        editing = {"image_editor": EDITOR, "candidates": 1, "diffusion": diffusion, "pool": pool}
        self.config: Config = config({}, budget=20, edit=editing)
        self.run: Run = prepare(settings.folder / "run", self.config)
        audit(self.run, self.config, "verdicts", "failures")
        self.cases = with_sources(self.run, instructed(self.run, sizes.rows), sizes.side)

    def turn(self) -> float:
        """Edit all sources once, into shards and a table of their own."""
        self.turns += 1
        shutil.rmtree(self.run.folder / CLOCK, ignore_errors=True)
        arguments = candidate_arguments(self.run, self.config, self.product)
        make = Step(ClockedMake, DRAFTS, arguments, *pool_of(self.config, "edit"))
        take = Step(TakeFirst, tables.EDITS.schema, {}, *cpu_pool(self.config))
        recipe = Recipe({"turn": self.turns})
        run_graph(self.run, self.product, recipe, tables.EDITS, [make, take], lambda: self.cases, faults=FaultConfig())
        return window(read_batches(self.run.folder))

    @property
    def product(self) -> str:
        """The table of the last turn."""
        return f"edits-{self.turns}"

    def pictures(self) -> dict[str, np.ndarray]:
        """Pixels `[H, W, 3]` uint8 of the last turn by failure."""
        store = image_store(self.run.folder, self.config.data)
        found = {}
        for row in self.run.read(self.product).to_pylist():
            (made,) = row["candidates"]
            assert made["status"] == tables.OK, made["reason"]
            found[row["failure_id"]] = np.asarray(store.rgb(made["uri"], made["offset"], made["length"]))
        return found


class Plain:
    """The same edits, asked of the pipeline alone, each turn in a new process."""

    def __init__(self, ours: Ours, threads: int) -> None:
        self.ours, self.threads = ours, threads
        language = RowLanguage(ours.config.language)
        self.asked = [
            (
                case["failure_id"],
                str(ours.run.folder / case["candidate_uri"]),
                language.of(case).instruct(language_case(case), Verdict("valid", mismatches_of(case))).text,
                tables.edit_seed(ours.config.seed, case["failure_id"], 0),
            )
            for case in ours.cases.to_pylist()
        ]
        self.made: dict[str, np.ndarray] = {}

    def turn(self) -> float:
        seconds, self.made = apart(plain_loop, self.ours.pipeline, self.asked, self.ours.sizes.steps, self.threads)
        return seconds


def plain_loop(
    pipeline: Path, asked: list[tuple[str, str, str, int]], steps: int, threads: int
) -> tuple[float, dict[str, np.ndarray]]:
    """Seconds of all calls, and the pictures by name."""
    from diffusers import Flux2KleinPipeline

    torch.set_num_threads(threads)
    editor = Flux2KleinPipeline.from_pretrained(pipeline, dtype=torch.float32)
    editor.set_progress_bar_config(disable=True)
    made = {}
    begun = time.monotonic()
    with torch.inference_mode():
        for name, source, instruction, seed in asked:
            with Image.open(source) as picture:
                shown = picture.convert("RGB")
            found: Any = editor(
                image=shown,
                prompt=instruction,
                num_inference_steps=steps,
                guidance_scale=1.0,
                generator=torch.Generator("cpu").manual_seed(seed),
                output_type="np",
                **ARGUMENTS,
            )
            made[name] = (found.images[0].clip(0, 1) * 255).round().astype(np.uint8)
    return time.monotonic() - begun, made


def with_sources(run: Run, cases: pa.Table, side: int) -> pa.Table:
    """The same cases, with source pictures of that size: the demo's are small."""
    (run.folder / "sources").mkdir()
    rows_ = cases.to_pylist()
    for number, row in enumerate(rows_):
        coarse = np.random.default_rng(number).integers(0, 256, (16, 16, 3), np.uint8)
        uri = f"sources/{number}.jpg"
        Image.fromarray(coarse).resize((side, side), Image.Resampling.BICUBIC).save(run.folder / uri, quality=90)
        row |= {"candidate_uri": uri, "candidate_offset": None, "candidate_length": None}
    return tables.to_table(rows_, tables.CASES)
