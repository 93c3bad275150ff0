"""What a run of a config will use: strategies, language models, and the interpreters of pools."""

from __future__ import annotations

from dataclasses import dataclass, replace

from repair_ray.config import Config, LanguageConfig, PoolConfig
from repair_ray.engines.pipelines import PIPELINES
from repair_ray.stages.pools import Stage, pool_of

DRIVER = ("torch", "torchvision", "ray", "open_clip", "faiss")
DIFFUSION = ("diffusers", "transformers", "accelerate")
# Stages that may have a pool of their own beside the editor's: what its actors need.
OWN_POOLS: tuple[tuple[Stage, tuple[str, ...], tuple[str, ...]], ...] = (
    ("data", ("ray",), ("repair_ray.stages.ingest",)),
    ("mining", ("ray", "faiss"), ("repair_ray.stages.mine",)),
    ("selection", DRIVER, ("repair_ray.stages.select",)),
    ("teacher", DRIVER, ("repair_ray.stages.embed",)),
)


def strategies(config: Config) -> set[str]:
    """The round's strategy and those of its controls, without `vanilla`, which synthesises nothing."""
    controls = {str(config.control(name).strategy) for name in config.control_names}
    return ({str(config.strategy)} | controls) - {"vanilla"}


def audits(config: Config) -> bool:
    """Whether failures are mined and judged."""
    return bool(strategies(config) & {"repair", "error_agnostic", "mined"}) or config.works_on == "failures"


def edits(config: Config) -> bool:
    """Whether anything is edited."""
    return bool(strategies(config) & {"repair", "error_agnostic", "triplet"})


def likens(config: Config) -> bool:
    """Whether words are likened with the retriever, for negative captions."""
    configs = [config, *(config.control(name) for name in config.control_names)]
    return any(
        made.strategy in ("san", "triplet")
        and made.negatives.confusable is None
        and made.negatives.similarity != "random"
        for made in configs
    )


def diffuses(config: Config) -> bool:
    """Whether a diffusion pipeline edits pictures."""
    wanted = "t2i" in config.mining.directions or "triplet" in strategies(config)
    return edits(config) and config.edit.image_editor in PIPELINES and wanted


def languages(config: Config) -> dict[str, LanguageConfig]:
    """The language sections that a stage asks, by their keys: `language`, `audit.language`, `edit.language`."""
    found: dict[str, LanguageConfig] = {}
    for stage, section, used in (
        ("audit", config.audit.language, audits(config)),
        ("edit", config.edit.language, edits(config) or "paraphrase" in strategies(config)),
    ):
        if used:
            found |= {f"{stage}.language": section} if section else {"language": config.language}
    return found


def language_pool(language: LanguageConfig) -> PoolConfig:
    """The actors that ask: an endpoint needs no GPU here, and of an engine each worker may lie on another node."""
    pool = language.pool
    if language.backend == "openai":
        return pool.on_cpu()
    workers = language.engine.workers
    shares = {"num_cpus": pool.num_cpus / workers, "num_gpus": pool.num_gpus / workers}
    return pool.model_copy(update={"actors": pool.actors * workers, **shares})


@dataclass(frozen=True)
class Interpreter:
    """A Python that the run starts, and what it has to import.

    `users` are the driver and the keys of pools; `python` None stands for the driver's own. `packages` are top-level
    modules; `imports` are what its processes import, and `variables` what is set for them.
    """

    users: tuple[str, ...]
    python: str | None
    packages: tuple[str, ...]
    imports: tuple[str, ...]
    variables: tuple[tuple[str, str], ...] = ()


def interpreters(config: Config) -> list[Interpreter]:
    """Every interpreter of a run, once, the driver's first."""
    embed = Interpreter(("pool",), config.pool.python, DRIVER, (*DRIVER, "repair_ray.stages.embed"))
    wanted = [Interpreter(("driver",), None, DRIVER, (*DRIVER, "repair_ray.rounds")), embed]
    if edits(config):
        packages: tuple[str, ...] = ("ray", *DIFFUSION) if diffuses(config) else ("ray",)
        imports = ("repair_ray.stages.candidates", *(["repair_ray.engines.diffusion"] if diffuses(config) else []))
        pool, key = pool_of(config, "edit")
        wanted.append(Interpreter((key,), pool.python, packages, imports))
    for stage, needed, modules in OWN_POOLS:
        pool, key = pool_of(config, stage)
        if key != "pool":
            wanted.append(Interpreter((key,), pool.python, needed, modules))
    for key, language in languages(config).items():
        wanted += _of_language(key, language)
    return _merged(wanted)


def _of_language(key: str, language: LanguageConfig) -> list[Interpreter]:
    users, python = (f"{key}.pool",), language.pool.python
    if language.backend == "openai":
        return [Interpreter(users, python, ("ray", "openai"), ("openai", "repair_ray.stages.endpoint"))]
    if language.backend == "vllm":
        variables = tuple(sorted(language.engine.variables.items()))
        imports = ("vllm", "repair_ray.stages.engine")
        # The driver builds the graph, with Ray's own module for it, wherever the engines run.
        driver = Interpreter(("driver",), None, ("ray",), ("repair_ray.stages.engine",))
        return [driver, Interpreter(users, python, ("ray", "vllm", "torch", "transformers"), imports, variables)]
    return []


def _merged(wanted: list[Interpreter]) -> list[Interpreter]:
    found: dict[str | None, Interpreter] = {}
    for one in wanted:
        other = found.get(one.python)
        found[one.python] = (
            one
            if other is None
            else replace(
                other,
                users=tuple(dict.fromkeys((*other.users, *one.users))),
                packages=tuple(dict.fromkeys((*other.packages, *one.packages))),
                imports=tuple(dict.fromkeys((*other.imports, *one.imports))),
                variables=tuple(dict((*other.variables, *one.variables)).items()),
            )
        )
    return list(found.values())
