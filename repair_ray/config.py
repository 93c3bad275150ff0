"""Every setting of a run: one pydantic tree, read from YAML, changed by `key=value` overrides.

`load_config` is the only way in. A bad key, type or value stops before any work starts, with the key's full name.
"""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

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
CONTROLS: tuple[str, ...] = get_args(Control)
# Pillow takes a picture of more pixels for a decompression bomb.
MAX_PIXELS = 178_956_970

PositiveInt = Annotated[int, Field(ge=1)]
Seed = Annotated[int, Field(ge=0)]
Fraction = Annotated[float, Field(ge=0.0, le=1.0)]


class ConfigError(Exception):
    """A setting is wrong. The message names the key, the value, and what is allowed."""


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
    format: Literal["parquet", "karpathy"] | None = Field(None, description="detected from the content when unset")
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

    @model_validator(mode="after")
    def _one_source(self) -> DataConfig:
        named = [self.train, self.validation, self.test]
        if self.world is not None and (self.path or any(named)):
            raise ValueError("set either data.world or data paths, not both")
        if self.world is None and not self.path and not self.train:
            raise ValueError("nothing to read: set data.path, or data.train and data.test, or data.world")
        if self.path and any(named):
            raise ValueError("set either data.path or one path a split (data.train, ...), not both")
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


class LanguageConfig(Section):
    """Who answers the language tasks (audit, instruct, edit captions)."""

    backend: Literal["heuristic"] = "heuristic"
    max_changes: PositiveInt = Field(4, description="an edit that needs more changes than this is not made")


class EditConfig(Section):
    """How false positives are edited (methods, section 1, step 3)."""

    candidates: PositiveInt = 3
    image_editor: Literal["scene", "none"] = Field("none", description="none: t2i takes paired counterparts only")


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


class Config(Section):
    """A run."""

    name: str = Field("run", pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")
    output: str = Field("runs", description="folder that holds run directories")
    seed: Seed = 0
    strategy: Strategy = "repair"
    controls: tuple[Control, ...] = Field(
        ("vanilla_equal_compute",), description="a list, or all (that differ from the round itself), or none"
    )
    data: DataConfig
    retriever: RetrieverConfig = RetrieverConfig()
    base: TrainingConfig | None = Field(None, description="train the retriever from scratch first")
    mining: MiningConfig = MiningConfig()
    language: LanguageConfig = LanguageConfig()
    edit: EditConfig = EditConfig()
    selection: SelectionConfig = SelectionConfig()
    objective: ObjectiveConfig = ObjectiveConfig()
    training: TrainingConfig = TrainingConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    pool: PoolConfig = PoolConfig()
    faults: FaultConfig = FaultConfig()

    @model_validator(mode="before")
    @classmethod
    def _named_controls(cls, tree: Any) -> Any:
        """`controls: all` and `controls: none` as lists."""
        if not isinstance(tree, dict) or tree.get("controls") not in ("all", "none"):
            return tree
        if tree["controls"] == "none":
            return {**tree, "controls": []}
        strategy, objective = tree.get("strategy", "repair"), tree.get("objective")
        placement = objective.get("placement", "local") if isinstance(objective, dict) else "local"
        same = {strategy, f"placement_{placement}", "vanilla_equal_steps" if strategy == "vanilla" else ""}
        no_edits = strategy == "vanilla"
        return {
            **tree,
            "controls": [c for c in CONTROLS if c not in same and not (no_edits and c.startswith("placement_"))],
        }

    @model_validator(mode="after")
    def _consistent(self) -> Config:
        if self.mining.split == self.evaluation.split:
            raise ValueError(
                f"mining.split and evaluation.split are both {self.evaluation.split!r}: that trains on test data"
            )
        if self.base is not None and self.retriever.pretrained is not None:
            raise ValueError(
                "retriever.pretrained and base are both set: take out base to repair those weights, "
                "or retriever.pretrained to train from scratch"
            )
        placements = [control for control in self.controls if control.startswith("placement_")]
        if self.strategy == "vanilla" and placements:
            raise ValueError(f"controls: {placements[0]} places edited pairs, and strategy=vanilla makes none")
        if self.objective.push_only and self.objective.placement != "local":
            raise ValueError(
                f"objective.push_only acts on local grids; objective.placement={self.objective.placement} "
                "pulls edited pairs together in the global batch: set objective.placement=local"
            )
        if self.edit.image_editor == "scene" and self.data.world is None:
            raise ValueError("edit.image_editor=scene edits the demo's scenes only; set edit.image_editor=none")
        for key, training in (("training", self.training), ("base", self.base)):
            if training is not None and training.batch_size % training.workers:
                raise ValueError(
                    f"{key}.batch_size={training.batch_size} does not divide over {key}.workers={training.workers}"
                )
        return self

    @property
    def run_dir(self) -> Path:
        return Path(self.output) / self.name


def load_config(path: str | Path, overrides: list[str] | None = None) -> Config:
    """Read a YAML file and apply `key=value` overrides (`training.lr=1e-4`; values are YAML).

    Raises:
        ConfigError: the file is missing or no mapping, an override is malformed, or a setting is wrong.
    """
    path = Path(path)
    try:
        tree = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"no config file at {path}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the config {path}: {error}") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{path} is not YAML: {error}") from None
    if not isinstance(tree, dict):
        raise ConfigError(f"{path} must hold a mapping of settings, not {type(tree).__name__}")
    for override in overrides or []:
        _apply(tree, override)
    return parse_config(tree, source=str(path))


def parse_config(tree: dict[str, Any], source: str = "config") -> Config:
    """Validate a nested mapping; raises `ConfigError` that lists every wrong key."""
    try:
        return Config.model_validate(tree)
    except ValidationError as error:
        lines = [_explain(problem) for problem in error.errors()]
        raise ConfigError(f"{source}: " + "; ".join(lines)) from None


def _apply(tree: dict[str, Any], override: str) -> None:
    key, separator, text = override.partition("=")
    if not separator or not key:
        raise ConfigError(f"override {override!r} is not of the form key=value")
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"override {override!r}: the value is not YAML: {error}") from None
    if isinstance(value, str):
        value = _number(value)
    *parents, leaf = key.split(".")
    node = tree
    for parent in parents:
        child = node.setdefault(parent, {})
        if child is None:
            child = node[parent] = {}
        if not isinstance(child, dict):
            raise ConfigError(f"override {override!r}: {parent} is a value, not a section")
        node = child
    node[leaf] = value


def _number(text: str) -> str | float:
    # YAML 1.1 reads 1e-4 as text, which nobody who types training.lr=1e-4 means.
    try:
        return float(text) if "e" in text.lower() else text
    except ValueError:
        return text


def _explain(problem: Any) -> str:
    location = [str(part) for part in problem["loc"]]
    key = ".".join(location) or "config"
    if problem["type"] == "extra_forbidden":
        known = _keys_at(location[:-1])
        close = difflib.get_close_matches(location[-1], known, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else f"; known keys here: {', '.join(known)}"
        return f"unknown key {key!r}{hint}"
    message = problem["msg"].removeprefix("Value error, ")
    if problem["type"] == "value_error":
        return message
    return f"{key}={problem.get('input')!r}: {message[0].lower()}{message[1:]}"


def _keys_at(location: list[str]) -> list[str]:
    model: type[BaseModel] = Config
    for part in location:
        field = model.model_fields.get(part)
        options = get_args(field.annotation) or (field.annotation,) if field else ()
        sections = [option for option in options if isinstance(option, type) and issubclass(option, BaseModel)]
        if not sections:
            return []
        model = sections[0]
    return sorted(model.model_fields)
