"""How mining is spread over actors, and which settings the failures depend on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from repair_ray.config import Config, MiningConfig, parse_config
from repair_ray.run import write_json
from repair_ray.stages.gallery import FACTS, Files
from repair_ray.stages.graph import Step
from repair_ray.stages.mine import _settings, _steps
from repair_ray.stages.shards import Shards

MIB = 2**20


def plan(folder: Path, images: int, captions: int, pool: dict[str, Any] | None = None, **mining: Any) -> list[Any]:
    write_json(folder / FACTS, {"rows": {"image": images, "caption": captions}, "width": 256})
    config: Config = parse_config({"data": {"path": "x"}, "pool": pool or {}, "mining": mining})
    return _steps(config, Files(folder), None)


@pytest.mark.parametrize(
    ("captions", "actors", "block"),
    [(500, 1, 256), (10_000, 1, 2_525), (10_000, 5, 505), (10_000, 100, 256), (10**6, 2, 4_096)],
)
def test_blocks_are_large_and_enough_for_all_actors(tmp_path: Path, captions: int, actors: int, block: int) -> None:
    (step,) = plan(tmp_path, 100, captions, {"actors": actors})
    assert isinstance(step, Step) and (step.pool.actors, step.pool.rows_per_block) == (actors, block)


def test_a_gallery_beyond_the_budget_is_split_over_the_actors_of_the_pool(tmp_path: Path) -> None:
    # 4096 rows of 256 numbers are 4 MiB, and the captions are the larger gallery.
    small = {"actors": 4, "num_cpus": 1.5, "num_gpus": 1}
    assert len(plan(tmp_path, 1, 4096, small, memory_mb=4)) == 1
    step, parts = plan(tmp_path, 1, 4097, small, memory_mb=4)
    assert isinstance(parts, Shards) and (parts.pool.actors, parts.pool.num_cpus) == (2, 1.5)
    assert parts.memory_bytes == 4 * MIB and step.arguments["shards"] == parts.names
    assert (step.pool.actors, step.pool.num_cpus, step.pool.num_gpus) == (2, 0.25, 0)
    # More parts than actors are searched one after another; a single actor splits nothing.
    assert plan(tmp_path, 1, 40_000, small, memory_mb=4)[1].pool.actors == 4
    assert len(plan(tmp_path, 1, 40_000, memory_mb=4)) == 1
    # The captions answer no caption.
    assert len(plan(tmp_path, 1, 4097, small, memory_mb=4, directions=["t2i"])) == 1
    assert len(plan(tmp_path, 1, 4097, small, memory_mb=4, index="ivf")) == 1
    assert plan(tmp_path, 1, 10, shards=3)[1].pool.actors == 3


def test_settings_of_speed_stay_out_of_the_recipe() -> None:
    plain = _settings(MiningConfig(), 0)
    assert plain == _settings(MiningConfig(memory_mb=1, shards=7, ivf_lists=3, ivf_probes=9, min_recall=0.1), 1)
    assert plain != _settings(MiningConfig(k=6), 0)
    near = _settings(MiningConfig(index="ivf"), 0)
    assert near != plain and near != _settings(MiningConfig(index="ivf"), 1)
    for change in ({"ivf_lists": 3}, {"ivf_probes": 9}, {"min_recall": 0.1}):
        assert _settings(MiningConfig(index="ivf", **change), 0) != near  # type: ignore[arg-type]
    assert _settings(MiningConfig(index="ivf", memory_mb=1), 0) == near
