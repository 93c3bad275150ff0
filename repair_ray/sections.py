"""The sections of a config: every setting with its default, its limits and what it means."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, model_validator

Split = Literal["train", "validation", "test"]
Strategy = Literal["repair", "vanilla", "mined", "error_agnostic"]
Control = Literal[
    "vanilla_equal_compute",
    "vanilla_equal_steps",
    "mined",
    "error_agnostic",
    "placement_local",
    "placement_dispersed",
    "placement_both",
]
Placement = Literal["local", "dispersed", "both"]
Format = Literal[
    "img2dataset",
    "clip_retrieval",
    "webdataset",
    "parquet",
    "arrow",
    "karpathy",
    "coco",
    "image_folder",
    "token",
    "json",
    "csv",
]
CONTROLS: tuple[str, ...] = get_args(Control)
# Pillow takes a picture of more pixels for a decompression bomb.
MAX_PIXELS = 178_956_970

PositiveInt = Annotated[int, Field(ge=1)]
Seed = Annotated[int, Field(ge=0)]
Fraction = Annotated[float, Field(ge=0.0, le=1.0)]


class Section(BaseModel):
    """Base of every section: unknown keys are errors, and a section never changes after loading."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class WorldConfig(Section):
    """The demo's own data set: how many scenes a split holds."""

    train: PositiveInt = 1500
    validation: PositiveInt = 400
    test: PositiveInt = 1000
    distractors: int = Field(3, ge=0, description="siblings of a scene that differ from it in one detail")
    seed: Seed = 0


class DataConfig(Section):
    """Where pairs come from. Either one path a split, or one `path` whose rows name their split."""

    path: str | None = Field(None, description="file, folder or glob that holds every split")
    train: str | None = None
    validation: str | None = None
    test: str | None = None
    world: WorldConfig | None = Field(None, description="generate the demo's scenes instead of reading files")
    format: Format | None = Field(None, description="detected from the content when unset")
    image_root: str | None = Field(None, description="folder that relative image paths start from")
    image_column: str | None = None
    caption_column: str | None = None
    group_column: str | None = Field(None, description="rows with the same value show the same thing")
    split_column: str | None = None
    id_column: str | None = None
    images: Literal["in_place", "shards"] = Field("in_place", description="bytes inside tables always go to shards")
    shard_mb: PositiveInt = 256
    background: tuple[int, int, int] = Field((255, 255, 255), description="RGB under transparent pixels")
    max_pixels: int = Field(64_000_000, ge=1, le=MAX_PIXELS, description="a larger picture is a row with a reason")
    max_image_mb: PositiveInt = 64
    limit: PositiveInt | None = Field(None, description="read at most this many rows of each split")
    overlap: Literal["refuse", "drop", "allow"] = Field(
        "refuse", description="pictures to train on that are in an evaluated split too: stop, leave them out, or train"
    )
    near_bits: int | None = Field(
        4, ge=0, le=7, description="near duplicates: perceptual hashes that differ in so many of 64 bits at most"
    )
    near_same: bool = Field(False, description="near duplicates count as the same picture, in groups and in overlap")
    near_cosine: float | None = Field(
        None, gt=0.0, le=1.0, description="list pictures to train on that are so near to an evaluated one, by embedding"
    )

    @model_validator(mode="after")
    def _one_source(self) -> DataConfig:
        named = [self.train, self.validation, self.test]
        if self.world is not None and (self.path or any(named)):
            raise ValueError("set either data.world or data paths, not both")
        if self.world is None and not self.path and not self.train:
            raise ValueError("nothing to read: set data.path, or data.train and data.test, or data.world")
        if self.path and any(named):
            raise ValueError("set either data.path or one path a split (data.train, ...), not both")
        if self.near_same and self.near_bits is None:
            raise ValueError("data.near_same needs near duplicates: set data.near_bits, such as 4")
        return self


class RetrieverConfig(Section):
    """The retriever under repair: any open_clip model."""

    model: str = Field("ViT-B-32", description="open_clip model name, or path of a model-config JSON")
    pretrained: str | None = Field(None, description="open_clip pretrained tag, or path of a checkpoint file")
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    batch_size: PositiveInt = Field(128, description="items a forward pass, when embedding")


class PoolConfig(Section):
    """Actors of one stage, and what each of them takes."""

    actors: PositiveInt = 1
    num_cpus: float = Field(1.0, ge=0.0)
    num_gpus: float = Field(0.0, ge=0.0)
    python: str | None = Field(None, description="interpreter of the actors, where theirs is another environment")
    rows_per_block: PositiveInt = Field(256, description="rows of one task: the unit of streaming and of resuming")

    def on_cpu(self) -> PoolConfig:
        """The same pool for a stage without a model."""
        return self.model_copy(update={"num_gpus": 0.0})


class FaultConfig(Section):
    """How a stage survives bad rows."""

    max_restarts: int = Field(8, ge=0, description="restarts of one actor before the stage stops")
    max_error_rate: Fraction = Field(0.5, description="a stage with more failing rows than this stops the run")
    poison: dict[str, Literal["raise", "kill"]] = Field(
        default_factory=dict, description="fault injection for tests: row id -> what its processing does"
    )


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
    memory_mb: PositiveInt = Field(2048, description="gallery features one FAISS index holds; more is sharded")

    @model_validator(mode="after")
    def _folds(self) -> MiningConfig:
        if self.folds == 1:
            raise ValueError("mining.folds must be 0 (off) or at least 2")
        return self


class EndpointConfig(Section):
    """An OpenAI-compatible endpoint (language.backend=openai)."""

    url: str | None = Field(None, description="such as http://host:8000/v1; unset: the client's own default")
    key_variable: str = Field("OPENAI_API_KEY", description="environment variable that holds the key")
    at_once: PositiveInt = Field(16, description="requests in flight, of each actor")
    per_minute: PositiveInt | None = Field(None, description="requests started in a minute, of each actor")
    retries: int = Field(6, ge=0, description="of one request, after 429, 5xx, a time-out or a broken connection")
    timeout_s: float = Field(120.0, gt=0.0)
    form: Literal["json_schema", "json_object", "text"] = Field(
        "json_schema", description="what the endpoint is told of the answer's form; it is checked here in any case"
    )
    extra: dict[str, Any] = Field(default_factory=dict, description="further fields of each request's body")


class EngineConfig(Section):
    """vLLM engines inside Ray Data (language.backend=vllm); `language.pool.actors` is the number of replicas."""

    arguments: dict[str, Any] = Field(default_factory=dict, description="vLLM's engine arguments")
    variables: dict[str, str] = Field(default_factory=dict, description="environment variables of the engines")
    template: dict[str, Any] = Field(default_factory=dict, description="arguments of the chat template")
    lora: str | None = Field(None, description="LoRA adapter: a folder or a hub name; set enable_lora in arguments")

    @model_validator(mode="after")
    def _ours(self) -> EngineConfig:
        if "model" in self.arguments:
            raise ValueError("language.engine.arguments.model: set language.model instead")
        return self

    @property
    def workers(self) -> int:
        """The processes of one engine, which share its weights and what its replica is given."""
        return math.prod(int(self.arguments.get(f"{kind}_parallel_size", 1)) for kind in ("tensor", "pipeline"))


class PriceConfig(Section):
    """What a million tokens cost, in any currency; for the report's sums."""

    input: float = Field(0.0, ge=0.0)
    output: float = Field(0.0, ge=0.0)


class LanguageConfig(Section):
    """Who answers the language tasks (audit, instruct, edit captions)."""

    backend: Literal["heuristic", "vllm", "openai"] = "heuristic"
    model: str | None = Field(None, description="hub name or folder (vllm), or the endpoint's name for it (openai)")
    view: Literal["captions", "images"] = Field(
        "captions", description="captions: an image stands for its captions; images: the model sees the pictures too"
    )
    image_px: PositiveInt = Field(512, description="longest side of a picture that is shown to a model")
    max_changes: PositiveInt = Field(4, description="an edit that needs more changes than this is not made")
    drafts: int = Field(3, ge=1, le=8, description="edited captions asked for with one question")
    min_confidence: Fraction = Field(0.0, description="a model that is less sure has abstained")
    temperature: float = Field(0.0, ge=0.0)
    top_p: float = Field(1.0, gt=0.0, le=1.0)
    max_tokens: PositiveInt = 512
    seed: Seed = 0
    answers: str | None = Field(None, description="folder of answers to share between runs; unset: the run's own")
    endpoint: EndpointConfig = EndpointConfig()
    engine: EngineConfig = EngineConfig()
    price: PriceConfig = PriceConfig()
    pool: PoolConfig = PoolConfig(rows_per_block=64)

    @model_validator(mode="after")
    def _model(self) -> LanguageConfig:
        if self.backend != "heuristic" and not self.model:
            raise ValueError(f"language.model is unset: language.backend={self.backend} needs the name of a model")
        if self.backend == "heuristic" and self.view == "images":
            raise ValueError("language.view=images: the heuristic backend sees no picture; set language.view=captions")
        return self


class AuditConfig(Section):
    """Who audits, where that is another model than `language`."""

    language: LanguageConfig | None = None


ImageEditorName = Literal["none", "scene", "flux2-klein", "flux2-klein-9b", "flux2", "flux-kontext", "instruct-pix2pix"]


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
    image_editor: ImageEditorName = Field("none", description="none: t2i takes paired counterparts only")
    diffusion: DiffusionConfig = DiffusionConfig()
    pool: PoolConfig | None = Field(None, description="actors that edit; unset: as `pool`")


class SelectionConfig(Section):
    """Which candidate wins (methods, section 1, step 4)."""

    audit: bool = Field(True, description="false: every mined failure goes on (ablation of quality control)")
    pick: Literal["minimal", "first", "random"] = "minimal"
    min_gain: float = Field(0.0, description="align(candidate) - align(false positive) must reach this")
    min_scaffold: float = Field(0.3, ge=-1.0, le=1.0)
    alpha: Fraction = Field(0.5, description="weight of align against scaffold")
    d_i2t: PositiveInt = Field(5, description="edited captions kept for one image")
    d_t2i: PositiveInt = Field(1, description="edited images kept for one caption")


class ObjectiveConfig(Section):
    """What training minimises: `infonce` over anchors, plus the hard pairs where `placement` puts them."""

    placement: Placement = "local"
    local_weight: float = Field(1.0, ge=0.0)
    local_scale: float | None = Field(None, gt=0.0, description="own logit scale of the local grid; unset: the model's")
    push_only: bool = Field(False, description="local grids only push hard negatives apart, and pull nothing")
    paired_fallback: bool = Field(True, description="a direction without an edit takes the mined item's own pair")


class TrainingConfig(Section):
    """One training run; the same code trains a base from scratch and fine-tunes it."""

    steps: PositiveInt = 400
    batch_size: PositiveInt = Field(128, description="anchors a step, over all workers")
    grid_share: Fraction = Field(
        1.0, description="share of a batch's anchors that bring their grid, where they have one"
    )
    lr: float = Field(5e-4, gt=0.0)
    weight_decay: float = Field(0.1, ge=0.0)
    warmup: Fraction = Field(0.1, description="share of the steps")
    betas: tuple[float, float] = (0.9, 0.98)
    grad_clip: float | None = 1.0
    precision: Literal["fp32", "bf16"] = "fp32"
    workers: PositiveInt = 1
    cpus_per_worker: PositiveInt = 2
    use_gpu: bool = False
    validate_every: PositiveInt = Field(100, description="steps between validations; the best checkpoint wins")
    checkpoint_every: PositiveInt = Field(50, description="steps between checkpoints")
    patience: PositiveInt | None = Field(None, description="validations without a gain before stopping early")
    image_cache_mb: PositiveInt = 512
    decode_threads: PositiveInt = 2


class EvaluationConfig(Section):
    """What is measured. On `validation`, for tuning, the figures flatter: the best checkpoint is picked there."""

    split: Literal["validation", "test"] = "test"
    bootstrap: PositiveInt = 1000
