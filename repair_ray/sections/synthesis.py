"""Who makes hard pairs, and how failures are mined, edited and selected."""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, Field, model_validator

from repair_ray.plugins import EDITORS, identity
from repair_ray.sections.base import (
    PLUGIN_SETTINGS,
    EditorName,
    Fraction,
    PluginSettings,
    PositiveInt,
    Section,
    Split,
    settings_of,
)
from repair_ray.sections.language import LanguageConfig
from repair_ray.sections.pools import PoolConfig

Control = Literal[
    "vanilla_equal_compute",
    "vanilla_equal_steps",
    "mined",
    "error_agnostic",
    "placement_local",
    "placement_dispersed",
    "placement_both",
]
CONTROLS: tuple[str, ...] = get_args(Control)


class MiningConfig(Section):
    """Which retrieval failures count (methods, section 1, step 1)."""

    split: Split = "train"
    directions: tuple[Literal["i2t", "t2i"], ...] = Field(("i2t", "t2i"), min_length=1)
    keep: Literal["top_k", "above_gt"] = "top_k"
    k: PositiveInt = Field(5, description="search depth in false positives, once positives are taken out")
    max_per_query: PositiveInt | None = Field(
        None, description="false positives kept for one query, best ranked first; unset: all of the k"
    )
    budget: PositiveInt | None = Field(None, description="failures kept for one direction, spread over queries")
    folds: int = Field(0, ge=0, description="cross-fitting: mine each fold with a retriever that never saw it")
    memory_mb: PositiveInt = Field(2048, description="gallery features that one actor searches at a time")
    shards: PositiveInt | None = Field(
        None,
        description="actors that split the gallery between them; unset: those of the pool, once it exceeds memory_mb",
    )
    index: Literal["flat", "ivf"] = Field("flat", description="flat is exact; ivf searches a part of the gallery")
    ivf_lists: PositiveInt | None = Field(None, description="lists of ivf; unset: 4 times the root of the gallery")
    ivf_probes: PositiveInt = Field(16, description="lists that are searched for a query")
    min_recall: Fraction = Field(0.9, description="ivf: with less of the exact neighbours found, the run stops")
    pool: PoolConfig | None = Field(None, description="actors that search; unset: as `pool`, without GPUs")

    @model_validator(mode="after")
    def _consistent(self) -> MiningConfig:
        if self.folds == 1:
            raise ValueError("mining.folds must be 0 (off) or at least 2")
        if self.index == "ivf" and self.shards is not None and self.shards > 1:
            raise ValueError("mining.shards splits a flat gallery: leave it unset with mining.index=ivf")
        return self

    def pools(self, pool: PoolConfig, shards: int) -> tuple[PoolConfig, ...]:
        """The actors of a search: those that search, each all of the gallery, or one of `shards` parts of it beside two
        that merge what the parts find."""
        if shards == 1:
            return (pool,)
        # While one merges, the other keeps the parts busy.
        share = {"num_cpus": 0.25, "num_gpus": 0.0, "accelerator_type": None}
        merging = pool.model_copy(update={"actors": 2, "max_actors": None, **share})
        return (merging, pool.model_copy(update={"actors": shards, "max_actors": None}))


class DiffusionConfig(Section):
    """How a diffusion editor runs; what is unset is the editor's own default."""

    model: str | None = Field(None, description="hub name or folder of the pipeline")
    dtype: Literal["bf16", "fp16", "fp32"] = "bf16"
    steps: PositiveInt | None = None
    guidance: float | None = Field(None, ge=0.0)
    max_px: PositiveInt = Field(1024, description="longest side of a picture while it is edited")
    offload: Literal["none", "model", "sequential"] = Field("none", description="parts that wait on the CPU")
    compile: bool = Field(False, description="torch.compile the denoiser: minutes once, then faster")
    attention: str | None = Field(None, description="attention backend, by diffusers' name for it")
    arguments: dict[str, Any] = Field(default_factory=dict, description="further arguments of each call")
    safety: str | None = Field(
        None, description="package.module:function that takes a PIL picture and returns why it is refused, or None"
    )


class EditConfig(Section):
    """How false positives are edited (methods, section 1, step 3)."""

    language: LanguageConfig | None = Field(None, description="who instructs and edits, where not `language`")
    candidates: PositiveInt = 3
    image_editor: EditorName = Field(
        "none",
        description="none: t2i takes paired counterparts only; scene, flux2-klein, flux2-klein-9b, flux2, "
        "flux-kontext, instruct-pix2pix, or the name of an editor that another package adds",
    )
    image_editor_settings: Annotated[PluginSettings, AfterValidator(settings_of(EDITORS, "image_editor"))] = Field(
        description="what an editor of another package is given", **PLUGIN_SETTINGS
    )
    diffusion: DiffusionConfig = DiffusionConfig()
    pool: PoolConfig | None = Field(None, description="actors that edit; unset: as `pool`, without GPUs")

    @property
    def recipe(self) -> dict[str, Any]:
        """What decides how pictures and captions are edited; who instructs is told apart."""
        return self.model_dump(mode="json", exclude={"language", "pool"}) | identity(EDITORS, self.image_editor)


class SelectionConfig(Section):
    """Which candidate wins (methods, section 1, step 4)."""

    audit: bool = Field(True, description="false: every mined failure goes on (ablation of quality control)")
    pick: Literal["minimal", "first", "random"] = "minimal"
    min_gain: float = Field(0.0, description="align(candidate) - align(false positive) must reach this")
    min_scaffold: float = Field(0.3, ge=-1.0, le=1.0)
    alpha: Fraction = Field(0.5, description="weight of align against scaffold")
    d_i2t: PositiveInt = Field(5, description="edited captions kept for one image")
    d_t2i: PositiveInt = Field(1, description="edited images kept for one caption")
    pool: PoolConfig | None = Field(
        None, description="actors that score what the actors of edit.pool make, beside them; unset: as `pool`"
    )


class NegativesConfig(Section):
    """Negative captions by other words (strategies negclip, san and triplet; methods, section 3)."""

    per_caption: PositiveInt = Field(4, description="negative captions made for a caption")
    swaps: PositiveInt = Field(1, description="words of a caption that are replaced in a negative")
    similarity: Literal["visual", "text", "random"] = Field(
        "visual", description="which words stand in: those that look alike (SAN), that mean alike, or any"
    )
    alpha: float = Field(0.7, ge=-1.0, le=1.0, description="least similarity of a word and a feature that it names")
    beta: float = Field(0.7, ge=-1.0, le=1.0, description="least similarity of the prototypes of confusable words")
    nearest: PositiveInt = Field(10, description="confusable words kept for a word, nearest first")
    tokens: Literal["patches", "whole"] = Field("patches", description="visual features of a picture")
    language: Literal["en", "de"] = "en"
    prompt: str = Field("{}", pattern=r"^[^{}]*\{\}[^{}]*$", description="what a word is encoded in; {} is the word")
    confusable: str | None = Field(
        None, description="CSV or Parquet of pairs (word, other), in place of what the retriever finds alike"
    )
    same: str | None = Field(
        None, description="CSV or Parquet of pairs (word, other) that mean the same, and never stand in for each other"
    )

    @property
    def needs(self) -> Literal["prototypes", "text_vectors", "forms"]:
        """What has to be known of the words for these negatives; `forms` needs no retriever."""
        if self.confusable is not None or self.similarity == "random":
            return "forms"
        return "prototypes" if self.similarity == "visual" else "text_vectors"
