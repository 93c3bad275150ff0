"""Every setting of a run: one pydantic tree, read from YAML, changed by `key=value` overrides.

`load_config` is the only way in, and `load_section` for those of other jobs. A bad key, type or value stops before
any work starts, with the key's full name.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, get_args

from pydantic import AfterValidator, Field, ValidationError, model_validator

from repair_ray.plugins import JUDGES, STRATEGIES, load
from repair_ray.sections.base import PLUGIN_SETTINGS, PluginSettings, Section, Seed, Split, Strategy, settings_of
from repair_ray.sections.data import DataConfig, WorldConfig
from repair_ray.sections.language import (
    AuditConfig,
    EndpointConfig,
    EngineConfig,
    LanguageConfig,
    PriceConfig,
)
from repair_ray.sections.multimatch import ExpertConfig, MultimatchConfig
from repair_ray.sections.objective import ObjectiveConfig, Placement, PluggedTermConfig
from repair_ray.sections.pools import ClusterConfig, FaultConfig, NodeGroupConfig, PoolConfig
from repair_ray.sections.reading import ConfigError, explain, load_section, merged, parse_section
from repair_ray.sections.review import CRITERIA, Criterion, ReviewConfig
from repair_ray.sections.rounds import BudgetConfig, RoundsConfig, ZeroShotConfig
from repair_ray.sections.synthesis import (
    CONTROLS,
    Control,
    DiffusionConfig,
    EditConfig,
    MiningConfig,
    NegativesConfig,
    SelectionConfig,
)
from repair_ray.sections.text import StsConfig, TextConfig, TextObjectiveConfig, TextsConfig, TextTrainingConfig
from repair_ray.sections.training import (
    EvaluationConfig,
    LoraConfig,
    OptimisationConfig,
    RetrieverConfig,
    TeacherConfig,
    TrainingConfig,
    check_workers,
)

__all__ = [
    "AuditConfig",
    "BudgetConfig",
    "CONTROLS",
    "CRITERIA",
    "ClusterConfig",
    "Config",
    "ConfigError",
    "Control",
    "Criterion",
    "DataConfig",
    "DiffusionConfig",
    "EditConfig",
    "EndpointConfig",
    "EngineConfig",
    "EvaluationConfig",
    "ExpertConfig",
    "FaultConfig",
    "LanguageConfig",
    "LoraConfig",
    "MiningConfig",
    "MultimatchConfig",
    "NegativesConfig",
    "NodeGroupConfig",
    "ObjectiveConfig",
    "OptimisationConfig",
    "Placement",
    "PluggedTermConfig",
    "PoolConfig",
    "PriceConfig",
    "RetrieverConfig",
    "ReviewConfig",
    "RoundsConfig",
    "Section",
    "SelectionConfig",
    "Split",
    "Strategy",
    "StsConfig",
    "TeacherConfig",
    "TextConfig",
    "TextObjectiveConfig",
    "TextTrainingConfig",
    "TextsConfig",
    "TrainingConfig",
    "WorldConfig",
    "ZeroShotConfig",
    "load_config",
    "load_section",
    "parse_config",
    "parse_section",
]

NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]*$"
_VANILLA: dict[str, Any] = {"strategy": "vanilla", "objective": {"fine_grained": None, "push_only": False}}
# What the named controls change.
PRESETS: dict[str, dict[str, Any]] = {
    "vanilla_equal_compute": _VANILLA,
    "vanilla_equal_steps": _VANILLA,
    "mined": {"strategy": "mined", "objective": {"fine_grained": None}},
    "error_agnostic": {"strategy": "error_agnostic", "objective": {"fine_grained": None}},
    **{
        f"placement_{placement}": {"objective": {"placement": placement, "push_only": False}}
        for placement in get_args(Placement)
    },
}
# The strategies whose next round finds failures that the last one has not seen.
MINING: tuple[Strategy, ...] = ("repair", "mined")
# The sections that a variant may change: what comes before them is shared by all controls.
VARIED = (
    "strategy",
    "mining",
    "language",
    "audit",
    "edit",
    "selection",
    "negatives",
    "objective",
    "training",
    "strategy_settings",
)


class Config(Section):
    """A run."""

    name: str = Field("run", pattern=NAME)
    output: str = Field("runs", description="folder that holds run directories")
    seed: Seed = 0
    strategy: Strategy = Field(
        "repair",
        description="who makes hard pairs: repair, mined, error_agnostic, negclip, san, paraphrase, triplet, vanilla "
        "(nobody), or the name of a strategy that another package adds",
    )
    strategy_settings: Annotated[PluginSettings, AfterValidator(settings_of(STRATEGIES, "strategy"))] = Field(
        description="what a strategy of another package is given", **PLUGIN_SETTINGS
    )
    controls: tuple[Control, ...] = Field(
        ("vanilla_equal_compute",), description="a list, or all (that differ from the round itself), or none"
    )
    variants: dict[str, dict[str, Any]] = Field(
        default_factory=dict,
        description="further controls: a name, and the settings in which it differs from the round",
    )
    data: DataConfig
    retriever: RetrieverConfig = RetrieverConfig()
    base: TrainingConfig | None = Field(None, description="train the retriever from scratch first")
    mining: MiningConfig = MiningConfig()
    language: LanguageConfig = LanguageConfig()
    audit: AuditConfig = AuditConfig()
    edit: EditConfig = EditConfig()
    selection: SelectionConfig = SelectionConfig()
    negatives: NegativesConfig = NegativesConfig()
    objective: ObjectiveConfig = ObjectiveConfig()
    teacher: TeacherConfig | None = None
    training: TrainingConfig = TrainingConfig()
    rounds: RoundsConfig = RoundsConfig()
    review: ReviewConfig = ReviewConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    multimatch: MultimatchConfig | None = Field(None, description="for `repair-ray multimatch build`")
    pool: PoolConfig = PoolConfig()
    cluster: ClusterConfig = ClusterConfig()
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
        if self.rounds.number > 1 and self.strategy not in MINING and self.works_on != "failures":
            raise ValueError(
                f"rounds.number={self.rounds.number}: strategy={self.strategy} works on no new failures in a second "
                f"round; strategies that do: {', '.join(MINING)}"
            )
        if self.rounds.number > 1 and self.mining.folds:
            raise ValueError(
                f"mining.folds={self.mining.folds} trains a retriever for each fold from the base, which later rounds "
                "have left behind: set mining.folds=0, or rounds=1"
            )
        if self.audit.examples and (self.audit.language or self.language).backend == "heuristic":
            raise ValueError(
                f"audit.examples={self.audit.examples}: the heuristic backend reads no prompt; set it to 0, or "
                "language.backend to one that asks a model"
            )
        for key, training in (("training", self.training), ("base", self.base)):
            if training is not None:
                check_workers(training, key)
        return self

    @model_validator(mode="after")
    def _objective_has_its_data(self) -> Config:
        objective = self.objective
        makes_negatives = self.strategy in ("negclip", "san", "triplet") or self.works_on == "captions"
        if objective.fine_grained is None and makes_negatives:
            raise ValueError(f"strategy={self.strategy} writes negative captions: set objective.fine_grained=true")
        if objective.fine_grained is not None and not makes_negatives:
            raise ValueError(
                f"objective.fine_grained needs negative captions, and strategy={self.strategy} writes none: "
                "set strategy to negclip, san or triplet, or to another that works on captions"
            )
        if self.strategy == "triplet" and self.edit.image_editor == "none":
            raise ValueError("strategy=triplet edits pictures: set edit.image_editor")
        if objective.taught and self.teacher is None:
            raise ValueError("objective has terms of a teacher: set teacher.retriever or teacher.features")
        if (
            self.teacher
            and self.teacher.retriever
            and self.teacher.retriever.model.startswith("sentence-transformers:")
        ):
            seeing = [name for name in ("soft_labels", "distill") if getattr(objective, name)]
            if objective.intra_modal and "image" in objective.intra_modal.kinds:
                seeing.append("intra_modal.kinds=[image]")
            if seeing:
                raise ValueError(
                    f"teacher.retriever.model={self.teacher.retriever.model} sees texts only, and "
                    f"objective.{seeing[0]} needs a teacher that sees pictures: take an open_clip model"
                )
        hard = objective.hard_negative_mixing
        if hard is not None and hard.k >= self.training.batch_size:
            raise ValueError(
                f"objective.hard_negative_mixing.k={hard.k}: a batch of training.batch_size={self.training.batch_size} "
                f"has at most {self.training.batch_size - 1} negatives for a query; lower k or raise the batch size"
            )
        return self

    @model_validator(mode="after")
    def _judges_do_what_is_asked(self) -> Config:
        editing = self.edit.language or self.language
        for strategies, methods in (
            (("repair", "error_agnostic", "triplet"), ("instruct", "edit_caption")),
            (("paraphrase",), ("paraphrase",)),
        ):
            if self.strategy not in strategies or editing.asks or editing.backend in JUDGES.builtin:
                continue
            lacking = [name for name in methods if not hasattr(load(JUDGES, editing.backend), name)]
            if lacking:
                key = "edit.language" if self.edit.language else "language"
                raise ValueError(
                    f"{key}.backend={editing.backend} has no {' and no '.join(lacking)}, which strategy="
                    f"{self.strategy} needs: name it as audit.language.backend, and another as {key}.backend"
                )
        return self

    @model_validator(mode="after")
    def _variants_are_configs(self) -> Config:
        for name, changes in self.variants.items():
            if not re.fullmatch(NAME, name) or name in CONTROLS:
                raise ValueError(f"variants.{name}: take another name, of letters, digits, '_', '-' and '.'")
            fixed = [key for key in changes if key not in VARIED]
            if fixed:
                raise ValueError(f"variants.{name}.{fixed[0]}: a variant may change only {', '.join(VARIED)}")
            for key in ("split", "folds"):
                if key in (changes.get("mining") or {}):
                    raise ValueError(f"variants.{name}.mining.{key}: all variants mine the same split and folds")
            try:
                self.control(name)
            except ValidationError as error:
                raise ValueError(
                    "; ".join(f"variants.{name}: {explain(problem, Config)}" for problem in error.errors())
                ) from None
        return self

    @model_validator(mode="after")
    def _rounds_are_configs(self) -> Config:
        for number, changes in self.rounds.changes.items():
            key = f"rounds.changes.{number}"
            fixed = [name for name in changes if name not in (*VARIED, "seed") or name == "strategy"]
            if fixed:
                allowed = ", ".join(name for name in (*VARIED, "seed") if name != "strategy")
                raise ValueError(f"{key}.{fixed[0]}: a round may change only {allowed}")
            for part in ("split", "folds"):
                if part in (changes.get("mining") or {}):
                    raise ValueError(f"{key}.mining.{part}: all rounds mine the same split")
            try:
                self.of_round(number)
            except ValidationError as error:
                raise ValueError(
                    "; ".join(f"{key}: {explain(problem, Config)}" for problem in error.errors())
                ) from None
        return self

    @classmethod
    def load(cls, path: str | Path, *overrides: str) -> Config:
        """Read a YAML file, with `key=value` overrides; raises `ConfigError` that names every wrong key."""
        return load_config(path, list(overrides))

    @property
    def control_names(self) -> tuple[str, ...]:
        """All controls, in the order in which they run."""
        return (*self.controls, *self.variants)

    def control(self, name: str) -> Config:
        """The config of a control: the round's own with other settings, and without controls."""
        changes = PRESETS[name] if name in PRESETS else self.variants[name]
        whole = {**self.model_dump(), "controls": [], "variants": {}, "rounds": {}}
        if changes.get("strategy", self.strategy) != self.strategy:
            whole.pop("strategy_settings", None)  # of the other strategy
        return Config.model_validate(merged(whole, changes))

    def of_round(self, number: int) -> Config:
        """The settings of a round: the run's, with what `rounds.changes` says of it and of earlier rounds."""
        changes: dict[str, Any] = {}
        for first, later in sorted(self.rounds.changes.items()):
            changes = merged(changes, later if first <= number else {})
        if not changes:
            return self
        whole = {**self.model_dump(), "controls": [], "variants": {}, "rounds": {}}
        return Config.model_validate(merged(whole, changes))

    @property
    def works_on(self) -> str | None:
        """What a strategy of another package works on, `failures` or `captions`; None for those that are built in."""
        return None if self.strategy in STRATEGIES.builtin else str(load(STRATEGIES, self.strategy).works_on)

    @property
    def trained_splits(self) -> tuple[str, ...]:
        """What every fine-tuning trains on, the round's and its controls': the split that was mined with it."""
        return tuple(dict.fromkeys(("train", self.mining.split)))

    @property
    def run_dir(self) -> Path:
        return Path(self.output) / self.name


def load_config(path: str | Path, overrides: list[str] | None = None) -> Config:
    """Read the config of a run from a YAML file; see `load_section`."""
    return load_section(Config, path, overrides)


def parse_config(tree: dict[str, Any], source: str = "config") -> Config:
    """Validate a nested mapping as the config of a run; raises `ConfigError` that lists every wrong key."""
    return parse_section(Config, tree, source)
