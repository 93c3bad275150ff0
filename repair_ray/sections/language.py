"""Who answers the language tasks."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from repair_ray.plugins import JUDGES
from repair_ray.sections.base import (
    PLUGIN_SETTINGS,
    Fraction,
    JudgeName,
    PluginSettings,
    PositiveInt,
    Section,
    Seed,
    settings_of,
)
from repair_ray.sections.pools import PoolConfig


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

    backend: JudgeName = Field(
        "heuristic", description="heuristic, vllm, openai, or the name of a judge that another package adds"
    )
    backend_settings: Annotated[PluginSettings, AfterValidator(settings_of(JUDGES, "backend"))] = Field(
        description="what a judge of another package is given", **PLUGIN_SETTINGS
    )
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
        if self.asks and not self.model:
            raise ValueError(f"language.model is unset: language.backend={self.backend} needs the name of a model")
        alone = self.engine.workers == 1 or self.engine.arguments.get("distributed_executor_backend") == "mp"
        if self.backend == "vllm" and self.pool.labels and not alone:
            # Ray places the workers of such an engine one by one, and ray.data.llm passes no labels on to them.
            raise ValueError(
                "language.pool.labels needs engines that lie on one node each: set "
                "language.engine.arguments.distributed_executor_backend=mp"
            )
        if not self.asks and self.view == "images":
            raise ValueError(
                f"language.view=images: the {self.backend} backend sees no picture; set language.view=captions"
            )
        each = self.pool.num_gpus / self.engine.workers
        if self.backend == "vllm" and each > 1 and not each.is_integer():
            raise ValueError(
                f"language.pool.num_gpus={self.pool.num_gpus:g} over the {self.engine.workers} workers of one engine "
                f"is {each:g} GPUs each: give each a share of one, or whole ones"
            )
        return self

    @property
    def asks(self) -> bool:
        """Whether a model is asked first, and its answers are read; else the backend answers by itself."""
        return self.backend in ("vllm", "openai")


class AuditConfig(Section):
    """Who audits, where that is another model than `language`, and what the judge is shown first."""

    language: LanguageConfig | None = None
    examples: int = Field(
        0,
        ge=0,
        le=32,
        description="edits of earlier rounds that people have reviewed, put before each question as examples; those "
        "there are when a round is first audited",
    )
