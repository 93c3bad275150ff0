"""Settings of pools: what is refused, which pool a stage takes, and that none of it changes what a stage makes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from repair_ray.config import Config, ConfigError, parse_config
from repair_ray.engines.retriever import RetrieverSpec
from repair_ray.finetune import finetune, named_retriever
from repair_ray.run import Recipe, Run
from repair_ray.stages.audit import audit
from repair_ray.stages.data import make_data
from repair_ray.stages.edit import edit
from repair_ray.stages.embed import embed
from repair_ray.stages.mine import mine
from repair_ray.stages.paraphrase import paraphrase
from repair_ray.stages.pools import cpu_pool, main_pool, pool_of
from repair_ray.stages.products import agree
from repair_ray.synthesis.negatives import negative_captions
from repair_ray.synthesis.strategies import paired_edits
from repair_ray.synthesis.triplet import triplets

SPEC = RetrieverSpec("tiny-64")
PLAIN: dict[str, Any] = {
    "data": {"world": {"train": 4, "validation": 2, "test": 2}},
    "retriever": {"model": "tiny-64"},
    "base": {"steps": 2},
    "edit": {"image_editor": "scene"},
    "language": {"backend": "openai", "model": "m"},
}
# Other than the default in everything.
OTHER = {
    "actors": 3,
    "max_actors": 7,
    "num_cpus": 0.5,
    "num_gpus": 2,
    "memory_mb": 512,
    "accelerator_type": "H100",
    "python": "/elsewhere/python",
    "rows_per_block": 32,
    "blocks_in_flight": 5,
}


def config(**sections: dict[str, Any]) -> Config:
    tree = {key: dict(value) for key, value in PLAIN.items()}
    for section, values in sections.items():
        tree[section] = tree.get(section, {}) | values
    return parse_config(tree)


@pytest.mark.parametrize(
    ("sections", "expected"),
    [
        ({"pool": {"actors": 4, "max_actors": 2}}, "pool: max_actors=2 is below actors=4"),
        ({"edit": {"pool": {"actors": 4, "max_actors": 2}}}, "edit.pool: max_actors=2 is below actors=4"),
        (
            {"pool": {"num_gpus": 1.5}},
            "pool: num_gpus=1.5: Ray gives an actor a share of one GPU or whole ones; set 1 or 2",
        ),
        ({"pool": {"num_gpus": -1}}, "pool.num_gpus=-1: input should be greater than or equal to 0"),
        ({"pool": {"num_cpus": -0.5}}, "pool.num_cpus=-0.5: input should be greater than or equal to 0"),
        ({"mining": {"pool": {"memory_mb": 0}}}, "mining.pool.memory_mb=0: input should be greater than or equal to 1"),
        ({"data": {"pool": {"actors": 0}}}, "data.pool.actors=0: input should be greater than or equal to 1"),
        ({"pool": {"accelerator_type": "H100"}}, "pool: accelerator_type=H100 needs num_gpus above 0"),
        (
            {"pool": {"max_actors": 4, "blocks_in_flight": 1}},
            "pool: blocks_in_flight=1 keeps the actors from growing to max_actors=4: set at least 2",
        ),
        (
            {
                "language": {
                    "backend": "vllm",
                    "engine": {"arguments": {"tensor_parallel_size": 2}},
                    "pool": {"num_gpus": 3},
                }
            },
            "language.pool.num_gpus=3 over the 2 workers of one engine is 1.5 GPUs each",
        ),
        ({"cluster": {"node_groups": [{"cpus": 4}]}}, "cluster.node_groups.0.max_nodes"),
    ],
)
def test_what_is_refused(sections: dict[str, Any], expected: str) -> None:
    with pytest.raises(ConfigError) as raised:
        config(**sections)
    assert expected in str(raised.value)


def test_a_stage_without_its_own_pool_takes_the_main_one() -> None:
    given = config(pool=OTHER)
    assert main_pool(given) == (given.pool, "pool")
    assert pool_of(given, "selection") == pool_of(given, "teacher") == (given.pool, "pool")
    for stage in ("data", "mining", "edit"):
        pool, key = pool_of(given, stage)  # type: ignore[arg-type]
        assert (pool.num_gpus, pool.accelerator_type, pool.actors, key) == (0.0, None, 3, "pool")
        assert pool_of(given, stage).device == "cpu"  # type: ignore[arg-type]
    assert cpu_pool(given).pool == pool_of(given, "mining").pool


def test_a_stage_takes_its_own_pool_as_it_is() -> None:
    given = config(mining={"pool": OTHER}, selection={"pool": {"actors": 2}})
    pool, key = pool_of(given, "mining")
    assert (pool.num_gpus, pool.accelerator_type, key) == (2.0, "H100", "mining.pool")
    assert pool_of(given, "mining").device == "cuda"
    assert pool_of(given, "selection").pool.actors == 2
    assert main_pool(given).pool.actors == 1


class Recorded(Run):
    """A run in which every product is ready, so that a stage only says what it would be made from."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.recipes: dict[str, Recipe] = {}

    def ready(self, product: str, recipe: Recipe) -> bool:
        self.recipes[product] = recipe
        return True


def recipes(folder: Path, config: Config) -> dict[str, Recipe]:
    """What every stage says."""
    run, base = Recorded(folder), named_retriever(config)
    make_data(run, config)
    embed(run, config, "embeddings", SPEC, ("train",), ())
    mine(run, config, "failures", "embeddings")
    audit(run, config, "verdicts", "failures")
    edit(run, config, "edits", "verdicts", "failures", "embeddings", SPEC)
    paired_edits(run, config, "paired", "failures", "verdicts")
    paraphrase(run, config, "paraphrases")
    negative_captions(run, config, "san/edits", "san", SPEC)
    triplets(run, config, "triplets", "san/edits")
    finetune(run, config, "training", base, config.training, progress=lambda *_: None)
    return run.recipes


def test_pools_and_cluster_are_in_no_recipe(tmp_path: Path) -> None:
    plain = recipes(tmp_path / "a", config())
    assert {"data/images", "embeddings", "failures", "verdicts", "verdicts_answers", "edits", "paired"} <= set(plain)
    changed = config(
        pool=OTHER,
        data={"pool": OTHER},
        mining={"pool": OTHER},
        selection={"pool": OTHER},
        edit={"pool": OTHER},
        language={"pool": OTHER},
        training={"workers": 2, "use_gpu": True, "accelerator_type": "H100"},
        cluster={"node_groups": [{"max_nodes": 3, "cpus": 8}], "object_store_mb": 100},
        faults={"stall_seconds": 5, "stop_seconds": 50},
    )
    assert recipes(tmp_path / "b", changed) == plain


def test_a_variant_with_another_pool_makes_the_same() -> None:
    one, other = config(), config(mining={"pool": OTHER}, edit={"pool": OTHER}, selection={"pool": OTHER})
    assert agree(one, other, ("mining", "edit", "selection", "strategy"))
    assert not agree(one, config(mining={"k": 9, "pool": OTHER}), ("mining",))
