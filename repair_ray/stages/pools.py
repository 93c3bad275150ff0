"""Which pool a stage takes: its own where the config names one, else `pool`."""

from __future__ import annotations

from typing import Literal, NamedTuple

from repair_ray.config import Config, LanguageConfig, PoolConfig

Stage = Literal["data", "mining", "edit", "selection", "teacher"]
# Their models do not run in the pool's actors where they have none of their own.
WITHOUT_GPU: tuple[Stage, ...] = ("data", "mining", "edit")


# A batch of words' sums is as large for many pictures as for few.
MATCH_ROWS = 1024


class Pool(NamedTuple):
    """A pool, and the key of the section that it stands in."""

    pool: PoolConfig
    key: str

    @property
    def device(self) -> str:
        """Where a stage's model runs: the pool's GPU share decides."""
        return "cuda" if self.pool.num_gpus > 0 else "cpu"


def main_pool(config: Config) -> Pool:
    """The actors of stages that run the retriever."""
    return Pool(config.pool, "pool")


def cpu_pool(config: Config) -> Pool:
    """The actors of stages without a model."""
    return Pool(config.pool.on_cpu(), "pool")


def pool_of(config: Config, stage: Stage) -> Pool:
    """The actors of a stage that may have its own."""
    own: PoolConfig | None = getattr(getattr(config, stage), "pool", None)
    if own is not None:
        return Pool(own, f"{stage}.pool")
    return cpu_pool(config) if stage in WITHOUT_GPU else main_pool(config)


def match_pool(config: Config, *, encodes: bool) -> Pool:
    """The actors that match words, with the retriever or without."""
    pool, key = main_pool(config) if encodes else cpu_pool(config)
    return Pool(pool.model_copy(update={"rows_per_block": max(MATCH_ROWS, pool.rows_per_block)}), key)


def key_of(config: Config, language: LanguageConfig) -> str:
    """Where a language section stands in its config."""
    verify = None if config.multimatch is None else config.multimatch.verify.language
    places = {
        "audit.language": config.audit.language,
        "edit.language": config.edit.language,
        "multimatch.verify.language": verify,
    }
    return next((key for key, section in places.items() if section is language), "language")
